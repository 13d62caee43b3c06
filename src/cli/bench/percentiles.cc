#include "cli/bench/percentiles.h"

#include <algorithm>
#include <cmath>

namespace chorus {

double percentileOf(const std::vector<double>& sorted, double percent) {
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentileOf(values, 50);
}

Distribution distributionOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  Distribution d{.count = values.size()};
  for (const double value : values) d.mean += value / static_cast<double>(values.size());
  d.p50 = percentileOf(values, 50);
  d.p90 = percentileOf(values, 90);
  d.p99 = percentileOf(values, 99);
  d.max = values.back();
  return d;
}

Json distributionJson(const Distribution& d, double scale) {
  if (d.count == 0) return nullptr;
  return {{"count", d.count},     {"mean", d.mean * scale}, {"p50", d.p50 * scale},
          {"p90", d.p90 * scale}, {"p99", d.p99 * scale},   {"max", d.max * scale}};
}

}  // namespace chorus
