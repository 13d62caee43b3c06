// Percentiles and summaries of latencies.
#pragma once

#include <vector>

#include "base/json.h"

namespace chorus {

// The value below which `percent` of the sorted, non-empty values lie, interpolated linearly between neighbours
// (numpy's default, R's type 7).
double percentileOf(const std::vector<double>& sorted, double percent);

double medianOf(std::vector<double> values);  // must not be empty

// The inverse of the cumulative distribution at n = min(points, number of values) equal steps: element i is the
// smallest value x for which at least (i + 1) / n of the values are at most x. Sorted; empty without values.
std::vector<double> quantilesOf(std::vector<double> values, size_t points);

struct Distribution {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

// All zero without values.
Distribution distributionOf(std::vector<double> values);
// {"count", "mean", "p50", "p90", "p99", "max"}, each latency times `scale`; null without values.
Json distributionJson(const Distribution& distribution, double scale);

}  // namespace chorus
