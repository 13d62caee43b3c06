#include <limits>

#include "kernels/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using RopeCacheTest = kernel_test::EveryIsa;

struct Outcome {
  std::vector<float> qkv;
  std::vector<std::byte> cache;
};

struct Case {
  int32_t num_heads, num_kv_heads, head_size, rotary_dim, tokens_per_block;
  bool interleaved, with_bias;
  DType dtype;
};

Outcome run(Backend& backend, Values values, const Case& c) {
  const int64_t width = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_size;
  const int32_t lengths[] = {1, 37, 5}, firsts[] = {17, 0, 62};
  std::vector<int32_t> table;
  KvLayer kv{nullptr, 0, c.dtype, c.num_kv_heads, c.head_size, c.tokens_per_block};
  kv.block_stride = kvBlockBytes(kv);
  const int32_t blocks = (80 + c.tokens_per_block - 1) / c.tokens_per_block;
  std::vector<std::vector<int32_t>> tables(3);
  for (int32_t i = 0; i < 3 * blocks; ++i) tables[static_cast<size_t>(i % 3)].push_back(3 * blocks - 1 - i);
  Outcome result;
  result.cache.resize(static_cast<size_t>(kv.block_stride * 3 * blocks));
  kv.base = result.cache.data();
  std::vector<SequenceSpan> spans;
  int32_t rows = 0;
  for (size_t s = 0; s < 3; ++s) {
    spans.push_back({rows, lengths[s], firsts[s], tables[s]});
    rows += lengths[s];
  }
  const std::vector<int32_t> tokens(static_cast<size_t>(rows));
  const auto cos = values.reals(80 * (c.rotary_dim / 2)), sin = values.reals(80 * (c.rotary_dim / 2));
  const auto bias = values.reals(width);
  result.qkv = values.reals(rows * width);
  const auto context = backend.createContext();
  backend.prepare({tokens, spans, {}}, *context);
  backend.ropeCache({kernel_test::view(result.qkv, rows, width),
                     c.with_bias ? bias.data() : nullptr,
                     c.num_heads,
                     {cos.data(), sin.data(), c.rotary_dim, c.interleaved},
                     kv},
                    *context, {});
  return result;
}

// The same roundings in the same order: bits equal the reference's, in q, k, v and the cache.
TEST_P(RopeCacheTest, EqualsTheReference) {
  const auto reference = createBackend({.name = "reference"});
  for (const int threads : {1, 3}) {
    const auto backend = kernel_test::cpuBackend(GetParam(), threads);
    for (const Case& c : {Case{4, 2, 64, 64, 16, false, false, DType::kFloat32},
                          Case{6, 2, 80, 32, 64, false, true, DType::kBFloat16},
                          Case{3, 1, 20, 20, 1, true, true, DType::kFloat16},
                          Case{3, 3, 17, 6, 2, true, false, DType::kBFloat16},
                          Case{2, 1, 5, 0, 8, false, true, DType::kFloat32},
                          Case{32, 8, 128, 128, 32, false, false, DType::kBFloat16}}) {
      const Outcome actual = run(*backend, Values(), c);
      const Outcome expected = run(*reference, Values(), c);
      kernel_test::expectSameBits(actual.qkv.data(), expected.qkv.data(), std::ssize(expected.qkv), "qkv");
      EXPECT_EQ(actual.cache, expected.cache) << "head size " << c.head_size << " " << dtypeName(c.dtype);
    }
  }
}

CHORUS_FOR_EVERY_ISA(RopeCacheTest);
}  // namespace
}  // namespace chorus
