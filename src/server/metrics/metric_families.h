// Builds prometheus-cpp's metric families from values that are read at the time of a scrape.
#pragma once

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus::server {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

class MetricFamilies {
 public:
  // Each of these adds one sample to the family `name`, which the first call creates.
  void counter(std::string_view name, std::string_view help, double value, MetricLabels labels = {});
  void gauge(std::string_view name, std::string_view help, double value, MetricLabels labels = {});
  void histogram(std::string_view name, std::string_view help, prometheus::ClientMetric::Histogram value,
                 MetricLabels labels = {});

  // The text format, version 0.0.4.
  std::string text() const;

 private:
  prometheus::ClientMetric& add(std::string_view name, std::string_view help, prometheus::MetricType type,
                                MetricLabels labels);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace chorus::server
