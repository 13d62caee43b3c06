#include "kernels/kernel_bench.h"
#include "kernels/linear/panel_layout.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace chorus {

double measureCall(const BenchCall& call, const BenchOptions& options) {
  using Clock = std::chrono::steady_clock;
  const size_t fewest = options.min_seconds > 0 ? 3 : 1;
  call();
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < fewest || total < options.min_seconds) {
    const auto start = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

namespace bench {

DeviceBuffer filled(Backend& backend, size_t bytes) {
  // The two highest bits of every exponent are 01: absolute values are in [2^-63, 2) as float32 or bfloat16, and normal
  // numbers as float16 too.
  static const std::vector<uint32_t> kWords = [] {
    std::mt19937 engine(7);
    std::vector<uint32_t> words(size_t{1} << 20);
    for (uint32_t& word : words) word = (static_cast<uint32_t>(engine()) & 0xbfffbfffu) | 0x20002000u;
    return words;
  }();
  DeviceBuffer buffer = backend.allocate(bytes);
  const size_t piece = kWords.size() * sizeof(uint32_t);
  for (size_t at = 0; at < bytes; at += piece) {
    backend.upload(buffer.as<char>() + at, kWords.data(), std::min(piece, bytes - at), {});
  }
  backend.synchronize({});
  return buffer;
}

BenchMatrix::BenchMatrix(Backend& backend, int64_t r, int64_t c)
    : buffer(filled(backend, static_cast<size_t>(r * c) * sizeof(float))), rows(r), cols(c) {}

ColdWeights::ColdWeights(Backend& backend, const WeightFormat& format, int64_t out, int64_t in, size_t cold_bytes) {
  const auto bytes = static_cast<size_t>(packedBytes(format, out, in));
  const size_t copies = std::max<size_t>(1, cold_bytes / bytes);
  buffer_ = filled(backend, copies * bytes);
  for (size_t i = 0; i < copies; ++i) copies_.push_back({buffer_.as<char>() + i * bytes, format, out, in});
}

}  // namespace bench
}  // namespace chorus
