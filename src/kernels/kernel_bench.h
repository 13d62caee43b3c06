// Timing one op at one shape. Each op's bench.cc lists its cases; `chorus bench kernels` prints them.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"
#include "kernels/variant.h"

namespace chorus {

// The op's call on inputs that it owns, in the backend's memory. What it streams in real use (a model's
// weights, a cache) is spread over at least cold_bytes, so that no call finds it in a cache. Must not outlive
// the backend.
using BenchCall = std::function<void()>;

struct BenchCase {
  std::string shape;           // "8 rows, 2048 -> 5632"
  std::optional<DType> dtype;  // of weights or cache; a variant that reads one format runs the cases of that format
  bool small = false;          // quick even for the reference, which runs no others
  double bytes = 0;            // that a call has to move to and from memory
  double flops = 0;            // of a call; 0 where moving is all there is
  std::function<BenchCall(Backend& backend, size_t cold_bytes)> prepare;
};

struct BenchOptions {
  double min_seconds = 0.2;  // timed, in at least three calls; 0: one call
  size_t cold_bytes = size_t{512} << 20;
};

// Median seconds of a call, after one that is not counted.
double measureCall(const BenchCall& call, const BenchOptions& options);

namespace bench {

// Device memory filled with finite values of any float format, none of them denormal.
DeviceBuffer filled(Backend& backend, size_t bytes);

// A matrix of such values.
struct BenchMatrix {
  BenchMatrix(Backend& backend, int64_t rows, int64_t cols);
  Matrix view() const { return {buffer.as<float>(), rows, cols, cols}; }
  DeviceBuffer buffer;
  int64_t rows, cols;
};

// Copies of one weight over cold_bytes, taken in turn: as the many layers of a model.
class ColdWeights {
 public:
  ColdWeights(Backend& backend, const WeightFormat& format, int64_t out, int64_t in, size_t cold_bytes);
  const PackedWeight& next() { return copies_[turn_++ % copies_.size()]; }

 private:
  DeviceBuffer buffer_;
  std::vector<PackedWeight> copies_;
  size_t turn_ = 0;
};

}  // namespace bench
}  // namespace chorus
