// A histogram that any number of threads fill at once without a lock. prometheus::Histogram locks a mutex for every
// value, and counts a value at a bucket's upper bound in the next bucket.
#pragma once

#include <prometheus/client_metric.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

namespace chorus::server {

class AtomicHistogram {
 public:
  // bounds: ascending upper bounds of the buckets; a last bucket without a bound is added. They must outlive the
  // histogram.
  explicit AtomicHistogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds.size() + 1)) {}

  // Counts `value` so many times.
  void observe(double value, uint64_t times = 1) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
    counts_[static_cast<size_t>(bucket)].fetch_add(times, std::memory_order_relaxed);
  }

  prometheus::ClientMetric::Histogram collect() const {
    prometheus::ClientMetric::Histogram out;
    for (size_t i = 0; i <= bounds_.size(); ++i) {
      out.sample_count += counts_[i].load(std::memory_order_relaxed);
      const double bound = i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity();
      out.bucket.push_back({.cumulative_count = out.sample_count, .upper_bound = bound});
    }
    out.sample_sum = sum_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  std::span<const double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace chorus::server
