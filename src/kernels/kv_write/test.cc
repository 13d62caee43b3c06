#include <limits>

#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using KvWriteTest = kernel_test::EveryVariant;

struct Outcome {
  std::vector<float> qkv;
  std::vector<std::byte> cache;
};

struct Case {
  int32_t num_heads, num_kv_heads, head_size, rotary_dim, tokens_per_block;
  bool interleaved, with_bias;
  DType dtype;
};

struct Input {
  int64_t width = 0;
  std::vector<std::vector<int32_t>> tables;
  std::vector<SequenceSpan> spans;
  std::vector<int32_t> tokens;
  std::vector<float> cos, sin, bias, qkv;
  KvLayer kv;
  size_t cache_bytes = 0;
};

Input makeInput(Values values, const Case& c) {
  Input in;
  in.width = int64_t{c.num_heads + 2 * c.num_kv_heads} * c.head_size;
  const int32_t lengths[] = {1, 37, 5}, firsts[] = {17, 0, 62};
  in.kv = {nullptr, 0, c.dtype, c.num_kv_heads, c.head_size, c.tokens_per_block};
  in.kv.block_stride = kvBlockBytes(in.kv);
  const int32_t blocks = (80 + c.tokens_per_block - 1) / c.tokens_per_block;
  in.tables.resize(3);
  for (int32_t i = 0; i < 3 * blocks; ++i) in.tables[static_cast<size_t>(i % 3)].push_back(3 * blocks - 1 - i);
  in.cache_bytes = static_cast<size_t>(in.kv.block_stride * 3 * blocks);
  int32_t rows = 0;
  for (size_t s = 0; s < 3; ++s) {
    in.spans.push_back({rows, lengths[s], firsts[s], in.tables[s]});
    rows += lengths[s];
  }
  in.tokens.resize(static_cast<size_t>(rows));
  in.cos = values.reals(80 * (c.rotary_dim / 2));
  in.sin = values.reals(80 * (c.rotary_dim / 2));
  in.bias = values.reals(in.width);
  in.qkv = values.reals(rows * in.width);
  return in;
}

Outcome run(Backend& backend, const Input& in, const Case& c, const float* query_scales = nullptr) {
  Outcome result{in.qkv, std::vector<std::byte>(in.cache_bytes)};
  KvLayer kv = in.kv;
  kv.base = result.cache.data();
  const auto context = kernel_test::prepared(backend, {.tokens = in.tokens, .sequences = in.spans});
  backend.kvWrite({kernel_test::view(result.qkv, std::ssize(in.tokens), in.width),
                   c.with_bias ? in.bias.data() : nullptr,
                   c.num_heads,
                   {},
                   {in.cos.data(), in.sin.data(), c.rotary_dim, c.interleaved},
                   kv,
                   query_scales},
                  *context, {});
  return result;
}

// Runs the op on `qkv` and returns the cache that it wrote. The context is prepared for the input.
std::vector<std::byte> cacheAfter(Backend& backend, StepContext& context, const Input& in, const Case& c,
                                  std::vector<float>& qkv, const float* bias, const HeadNorms& norms) {
  std::vector<std::byte> cache(in.cache_bytes);
  KvLayer kv = in.kv;
  kv.base = cache.data();
  backend.kvWrite({kernel_test::view(qkv, std::ssize(in.tokens), in.width),
                   bias,
                   c.num_heads,
                   norms,
                   {in.cos.data(), in.sin.data(), c.rotary_dim, c.interleaved},
                   kv},
                  context, {});
  return cache;
}

constexpr Case kCases[] = {
    Case{4, 2, 64, 64, 16, false, false, DType::kFloat32}, Case{6, 2, 80, 32, 64, false, true, DType::kBFloat16},
    Case{3, 1, 20, 20, 1, true, true, DType::kFloat16},    Case{3, 3, 17, 6, 2, true, false, DType::kBFloat16},
    Case{2, 1, 5, 0, 8, false, true, DType::kFloat32},     Case{32, 8, 128, 128, 32, false, false, DType::kBFloat16}};

// All variants round in the same order: q, k, v and the cache have the bits of the reference.
TEST_P(KvWriteTest, EqualsTheReference) {
  const auto reference = createBackend({.name = "reference"});
  for (const int threads : {1, 3}) {
    Backend& backend = newBackend(threads);
    for (const Case& c : kCases) {
      const Input in = makeInput(Values(), c);
      const Outcome actual = run(backend, in, c);
      const Outcome expected = run(*reference, in, c);
      kernel_test::expectSameBits(actual.qkv.data(), expected.qkv.data(), std::ssize(expected.qkv), "qkv");
      EXPECT_EQ(actual.cache, expected.cache) << "head size " << c.head_size << " " << dtypeName(c.dtype);
    }
  }
}

// A pair (a, b) rotated by an angle is (a cos - b sin, b cos + a sin), within two roundings each. The cache holds the
// row's k and v, rounded once.
TEST_P(KvWriteTest, RotatesInDoublePrecisionAndKeepsWhatItRotated) {
  Backend& backend = newBackend(2);
  for (const Case& c : kCases) {
    const Input in = makeInput(Values(), c);
    const Outcome out = run(backend, in, c);
    const int64_t half = c.rotary_dim / 2, width = in.width;
    for (const SequenceSpan& s : in.spans) {
      for (int64_t i = 0; i < s.num_rows; ++i) {
        const float* before = in.qkv.data() + (s.row_begin + i) * width;
        const float* after = out.qkv.data() + (s.row_begin + i) * width;
        const int64_t position = s.first_position + i;
        const auto value = [&](int64_t at) {
          return double{before[at]} + (c.with_bias ? double{in.bias[static_cast<size_t>(at)]} : 0.0);
        };
        for (int64_t at = 0; at < width; ++at) {
          const int64_t head = at / c.head_size, d = at % c.head_size;
          double expected = value(at);
          if (head < c.num_heads + c.num_kv_heads && d < c.rotary_dim) {
            const int64_t pair = c.interleaved ? d / 2 : d % half;
            const bool second = c.interleaved ? d % 2 == 1 : d >= half;
            const int64_t other = at + (c.interleaved ? 1 : half) * (second ? -1 : 1);
            const double cos = in.cos[static_cast<size_t>(position * half + pair)];
            const double sin = in.sin[static_cast<size_t>(position * half + pair)];
            expected = value(at) * cos + (second ? 1 : -1) * value(other) * sin;
          }
          ASSERT_NEAR(after[at], expected, 8 * std::numeric_limits<float>::epsilon()) << "column " << at;
        }
        for (int64_t at = 0; at < int64_t{c.num_kv_heads} * c.head_size; ++at) {
          const int64_t head = at / c.head_size, d = at % c.head_size;
          const float* k = after + c.num_heads * c.head_size;
          const float* v = k + c.num_kv_heads * c.head_size;
          const auto rounded = kernel_test::asDtype({k[at], v[at]}, c.dtype);
          const auto block = static_cast<size_t>(s.block_tables[0][static_cast<size_t>(position / c.tokens_per_block)]);
          const std::byte* data = out.cache.data() + block * static_cast<size_t>(in.kv.block_stride);
          ASSERT_EQ(loadAsFloat(data, c.dtype, keyIndex(in.kv, head, position, d)),
                    loadAsFloat(rounded.data(), c.dtype, 0));
          ASSERT_EQ(loadAsFloat(data, c.dtype, valueIndex(in.kv, head, position, d)),
                    loadAsFloat(rounded.data(), c.dtype, 1));
        }
      }
    }
  }
}

// The results of the op with norms have the same bits as those of rms_norm over the rows' heads, followed by the op
// without norms.
TEST_P(KvWriteTest, NormalisesEachHeadAsRmsNormDoes) {
  Backend& backend = newBackend(2);
  for (const Case& c : kCases) {
    Values values(kernel_test::kSeed + 1);
    const Input in = makeInput(values, c);
    const auto rows = std::ssize(in.tokens);
    const int64_t size = c.head_size;
    const auto query = values.reals(size), key = values.reals(size), own = values.reals(size);
    const RowRange ranges[] = {{0, 3}, {20, 21}};
    const NormGroup groups[] = {{ranges, own.data()}};
    const auto context =
        kernel_test::prepared(backend, {.tokens = in.tokens, .sequences = in.spans, .groups = {.norm = groups}});
    const auto write = [&](std::vector<float>& qkv, const float* bias, const HeadNorms& norms) {
      return cacheAfter(backend, *context, in, c, qkv, bias, norms);
    };
    std::vector<float> together = in.qkv, apart = in.qkv;
    const auto cache = write(together, in.bias.data(), {query.data(), key.data(), 1e-5f, {0, 1}, {}});
    for (int64_t r = 0; r < rows; ++r) {
      float* row = apart.data() + r * in.width;
      for (int64_t i = 0; i < in.width; ++i) row[i] += in.bias[static_cast<size_t>(i)];
      const bool in_group = r < 3 || r == 20;
      const auto normalise = [&](int64_t first, int64_t heads, const float* weight) {
        const Matrix x = {row + first * size, heads, size, size};
        backend.rmsNorm({.residual = x, .weight = weight, .epsilon = 1e-5f, .y = x}, *context, {});
      };
      normalise(0, c.num_heads, in_group ? own.data() : query.data());
      normalise(c.num_heads, c.num_kv_heads, key.data());
    }
    EXPECT_EQ(cache, write(apart, nullptr, {}));
    kernel_test::expectSameBits(together.data(), apart.data(), std::ssize(apart), fmt::format("head size {}", size));
  }
}

// The results of the op with row_squares have the same bits as those of rms_norm over all queries and over all keys of
// a row. The test simulates a second rank with equal sums: sums and counts are doubled, and this rank's weights begin
// at an offset.
TEST_P(KvWriteTest, NormalisesWholeRowsAsRmsNormDoes) {
  Backend& backend = newBackend(2);
  for (const Case& c : kCases) {
    Values values(kernel_test::kSeed + 2);
    const Input in = makeInput(values, c);
    const auto rows = std::ssize(in.tokens);
    const int64_t queries = c.num_heads * c.head_size, keys = c.num_kv_heads * c.head_size;
    const auto query = values.reals(3 + queries), key = values.reals(5 + keys);
    const auto own = values.reals(3 + queries), own_key = values.reals(5 + keys);
    const RowRange ranges[] = {{0, 3}, {20, 21}};
    const NormGroup groups[] = {{ranges, own.data()}, {ranges, own_key.data()}};
    const auto context =
        kernel_test::prepared(backend, {.tokens = in.tokens, .sequences = in.spans, .groups = {.norm = groups}});
    std::vector<float> together = in.qkv, apart = in.qkv, squares(static_cast<size_t>(2 * rows));
    const auto squaresOf = [&](int64_t first, int64_t cols, float* to) {
      backend.rowSquares({.x = {in.qkv.data() + first, rows, cols, in.width},
                          .bias = in.bias.data() + first,
                          .squares = to,
                          .stride = 2},
                         *context, {});
    };
    squaresOf(0, queries, squares.data());
    squaresOf(queries, keys, squares.data() + 1);
    for (float& sum : squares) sum *= 2;
    const auto write = [&](std::vector<float>& qkv, const float* bias, const HeadNorms& norms) {
      return cacheAfter(backend, *context, in, c, qkv, bias, norms);
    };
    const auto cache = write(together, in.bias.data(),
                             {.query = query.data(),
                              .key = key.data(),
                              .epsilon = 1e-5f,
                              .query_groups = {0, 1},
                              .key_groups = {1, 2},
                              .row_squares = squares.data(),
                              .query_count = 2 * queries,
                              .key_count = 2 * keys,
                              .query_begin = 3,
                              .key_begin = 5});
    for (int64_t r = 0; r < rows; ++r) {
      float* row = apart.data() + r * in.width;
      for (int64_t i = 0; i < in.width; ++i) row[i] += in.bias[static_cast<size_t>(i)];
      const bool in_group = r < 3 || r == 20;
      const auto normalise = [&](int64_t first, int64_t cols, const float* weight) {
        const Matrix x = {row + first, 1, cols, cols};
        backend.rmsNorm({.residual = x, .weight = weight, .epsilon = 1e-5f, .y = x}, *context, {});
      };
      normalise(0, queries, (in_group ? own : query).data() + 3);
      normalise(queries, keys, (in_group ? own_key : key).data() + 5);
    }
    EXPECT_EQ(cache, write(apart, nullptr, {}));
    kernel_test::expectSameBits(together.data(), apart.data(), std::ssize(apart),
                                fmt::format("head size {}", c.head_size));
  }
}

// With query_scales, the queries are those of the op without them times the factor of their position; keys, values and
// the cache are the same.
TEST_P(KvWriteTest, MultipliesQueriesByTheFactorOfTheirPosition) {
  Backend& backend = newBackend(2);
  for (const Case& c : kCases) {
    Values values(kernel_test::kSeed + 3);
    const Input in = makeInput(values, c);
    const std::vector<float> scales = values.reals(80);
    const Outcome plain = run(backend, in, c), scaled = run(backend, in, c, scales.data());
    EXPECT_EQ(scaled.cache, plain.cache);
    std::vector<float> expected = plain.qkv;
    for (const SequenceSpan& s : in.spans) {
      for (int64_t i = 0; i < s.num_rows; ++i) {
        float* row = expected.data() + (s.row_begin + i) * in.width;
        for (int64_t at = 0; at < c.num_heads * c.head_size; ++at) {
          row[at] *= scales[static_cast<size_t>(s.first_position + i)];
        }
      }
    }
    kernel_test::expectSameBits(scaled.qkv.data(), expected.data(), std::ssize(expected), "qkv");
  }
}

CHORUS_FOR_EVERY_VARIANT(KvWrite, KvWriteTest);
}  // namespace
}  // namespace chorus
