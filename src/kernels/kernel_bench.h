// Times one op at one shape. Each op's bench.cc lists its cases; `chorus bench kernels` prints them.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.h"
#include "kernels/variant.h"

namespace chorus {

// Calls the op once, on inputs that the function object owns, in the backend's memory. Data that is read from memory in
// real use (weights, KV cache) is copied until it fills about cold_bytes, and calls use the copies in turn, so that no
// call finds its data in a CPU cache. Must not outlive the backend.
using BenchCall = std::function<void()>;

struct BenchCase {
  std::string shape;           // "8 rows, 2048 -> 5632"
  std::optional<DType> dtype;  // type of weights or cache; a variant with a dtype runs only the cases of that dtype
  bool small = false;          // fast enough for the reference, which runs only such cases
  double bytes = 0;            // that one call must move to and from memory
  double flops = 0;            // of one call; 0 if it only moves data
  std::function<BenchCall(Backend& backend, size_t cold_bytes)> prepare;
};

struct BenchOptions {
  double min_seconds = 0.2;  // minimum timed duration, in at least three calls; 0: one call
  size_t cold_bytes = size_t{512} << 20;
};

// Median duration of a call in seconds, after one call that is not counted.
double measureCall(const BenchCall& call, const BenchOptions& options);

namespace bench {

// Device memory filled with bits that are finite, normal numbers in every float format.
DeviceBuffer filled(Backend& backend, size_t bytes);

// A matrix filled in this way.
struct BenchMatrix {
  BenchMatrix(Backend& backend, int64_t rows, int64_t cols);
  Matrix view() const { return {buffer.as<float>(), rows, cols, cols}; }
  DeviceBuffer buffer;
  int64_t rows, cols;
};

// Copies of one weight: as many as fit into cold_bytes, at least one. next() returns them in turn, like the layers of a
// model.
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
