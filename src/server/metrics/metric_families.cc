#include "server/metrics/metric_families.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>

namespace chorus::server {

prometheus::ClientMetric& MetricFamilies::add(std::string_view name, std::string_view help, prometheus::MetricType type,
                                              MetricLabels labels) {
  // The search begins at the end, because samples of one family mostly come together.
  auto found =
      std::find_if(families_.rbegin(), families_.rend(), [&](const auto& family) { return family.name == name; });
  if (found == families_.rend()) {
    families_.push_back({.name = std::string(name), .help = std::string(help), .type = type, .metric = {}});
    found = families_.rbegin();
  }
  prometheus::ClientMetric& metric = found->metric.emplace_back();
  metric.label = std::move(labels);
  return metric;
}

void MetricFamilies::counter(std::string_view name, std::string_view help, double value, MetricLabels labels) {
  add(name, help, prometheus::MetricType::Counter, std::move(labels)).counter.value = value;
}

void MetricFamilies::gauge(std::string_view name, std::string_view help, double value, MetricLabels labels) {
  add(name, help, prometheus::MetricType::Gauge, std::move(labels)).gauge.value = value;
}

void MetricFamilies::histogram(std::string_view name, std::string_view help, prometheus::ClientMetric::Histogram value,
                               MetricLabels labels) {
  add(name, help, prometheus::MetricType::Histogram, std::move(labels)).histogram = std::move(value);
}

std::string MetricFamilies::text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_);
  return std::move(out).str();
}

}  // namespace chorus::server
