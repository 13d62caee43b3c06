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

std::vector<double> quantilesOf(std::vector<double> values, size_t points) {
  std::sort(values.begin(), values.end());
  const size_t count = values.size(), n = std::min(points, count);
  std::vector<double> quantiles;
  for (size_t i = 1; i <= n; ++i) {
    const size_t rank = (i * count + n - 1) / n;  // the smallest number of values that is i / n of all or more
    quantiles.push_back(values[rank - 1]);
  }
  return quantiles;
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
