// An adapter of an Executor request with any config rows and values is refused with an Error or fits the model. Input:
// rows, columns and dtypes, values per row (a byte each), then the config's int32 rows, then the weights.
// parses: src/lora/tensor_adapter.cc
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "fuzz/fuzz_target.h"
#include "lora/tensor_adapter.h"
#include "lora/testing/test_model.h"

namespace {

// The next `size` bytes of the input in a buffer of exactly that size, filled with zeros past the input's end.
std::vector<std::byte> take(std::span<const uint8_t>& input, size_t size) {
  std::vector<std::byte> bytes(size);
  const size_t given = std::min(size, input.size());
  if (given > 0) std::memcpy(bytes.data(), input.data(), given);
  input = input.subspan(given);
  return bytes;
}

}  // namespace

// A valid adapter is expanded to float matrices whose sizes the first three bytes set: the most expensive one takes 0.9
// ms and 104 KB.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 4000, .bytes = 256 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  using namespace chorus;
  static const TestModel model;
  if (size < 3) return;
  const int64_t rows = data[0] % 8;
  const int64_t columns = 2 + data[1] % 4;
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8};
  const DType dtype = kDTypes[(data[1] >> 2) % 4];
  const bool batched = (data[1] & 16) != 0;
  const int64_t longest = data[2];
  std::span<const uint8_t> rest(data + 3, size - 3);
  const auto config = take(rest, static_cast<size_t>(rows * columns) * sizeof(int32_t));
  const auto weights = take(rest, static_cast<size_t>(rows * longest) * dtypeSize(dtype));
  std::vector<int64_t> config_shape = {rows, columns};
  std::vector<int64_t> weights_shape = {rows, longest};
  if (batched) {
    config_shape.insert(config_shape.begin(), 1);
    weights_shape.insert(weights_shape.begin(), 1);
  }
  try {
    const Adapter adapter = readTensorAdapter({dtype, weights_shape, weights}, {DType::kInt32, config_shape, config},
                                              nullptr, "fuzz", {model.config, model.table, 8});
    float sum = 0;
    for (const AdapterModule& module : adapter.modules) {
      if (module.rank < 1 || module.rank > 8) std::abort();
      for (size_t i = 0; i < module.aBytes() / dtypeSize(module.dtype); ++i)
        sum += loadAsFloat(module.a, module.dtype, i);
      for (size_t i = 0; i < module.bBytes() / dtypeSize(module.dtype); ++i)
        sum += loadAsFloat(module.b, module.dtype, i);
    }
    [[maybe_unused]] static volatile float sink;
    sink = sum;
  } catch (const Error&) {
  }
}
