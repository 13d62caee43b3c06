#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/linear/linear.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;

constexpr float kScale = 0.37f;

struct Shape {
  int32_t num_heads, num_kv_heads, head_size, tokens_per_block;
  DType dtype = DType::kFloat32;
  AttentionMask mask = {};
  float softcap = 0;
  std::vector<float> slopes = {};
  float scale = kScale;
  int64_t qWidth() const { return int64_t{num_heads} * head_size; }
  AttentionScore score() const { return {scale, softcap, slopes.empty() ? nullptr : slopes.data()}; }
  std::string text() const {
    return fmt::format("heads {}/{} size {} block {} {} window {} softcap {} slopes {}", num_heads, num_kv_heads,
                       head_size, tokens_per_block, dtypeName(dtype), mask.window, softcap, slopes.size());
  }
};

// The masks and forms of scores that models have, for a number of heads.
std::vector<Shape> formsOf(const Shape& shape) {
  std::vector<Shape> forms(6, shape);
  for (int32_t head = 0; head < shape.num_heads; ++head) {
    for (const size_t i : {2, 4}) forms[i].slopes.push_back(std::exp2(-static_cast<float>(head % 9)));
  }
  forms[1].softcap = forms[4].softcap = 3.5f;
  forms[3].mask.window = 21;
  forms[4].mask.window = 64;
  forms[5].mask.window = 1;
  return forms;
}

// All inputs of one sequence, independent of how they are chunked and where its blocks are.
struct Sequence {
  int64_t length;
  std::vector<float> q, k, v;

  Sequence(Values& values, const Shape& shape, int64_t tokens)
      : length(tokens),
        q(values.reals(tokens * shape.qWidth(), -2, 2)),
        k(values.reals(tokens * shape.num_kv_heads * shape.head_size, -2, 2)),
        v(values.reals(tokens * shape.num_kv_heads * shape.head_size, -2, 2)) {}
};

// A KV cache that holds the keys and values of every sequence in randomly placed blocks. Unwritten slots hold NaN.
class Cache {
 public:
  Cache(Values& values, const Shape& shape, const std::vector<Sequence>& sequences) : shape_(shape) {
    std::vector<int32_t> ids;
    for (const Sequence& s : sequences) {
      tables_.emplace_back(static_cast<size_t>((s.length + shape.tokens_per_block - 1) / shape.tokens_per_block));
      for (size_t i = 0; i < tables_.back().size(); ++i) ids.push_back(static_cast<int32_t>(ids.size()));
    }
    for (size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[static_cast<size_t>(values.integer(0, static_cast<int64_t>(i) - 1))]);
    layer_ = {nullptr, 0, shape.dtype, shape.num_kv_heads, shape.head_size, shape.tokens_per_block};
    layer_.block_stride = kvBlockBytes(layer_) + 64;
    memory_.resize(static_cast<size_t>(layer_.block_stride) * ids.size(), std::byte{0xff});
    layer_.base = memory_.data();
    size_t next = 0;
    for (auto& table : tables_) {
      for (int32_t& id : table) id = ids[next++];
    }
  }

  void write(const Sequence& sequence, size_t index, int64_t begin, int64_t end) {
    const size_t size = dtypeSize(shape_.dtype);
    for (int64_t p = begin; p < end; ++p) {
      std::byte* block = kvBlock(layer_, tables_[index], p);
      for (int64_t i = 0; i < shape_.num_kv_heads * shape_.head_size; ++i) {
        const int64_t head = i / shape_.head_size, d = i % shape_.head_size;
        const int64_t at = p * shape_.num_kv_heads * shape_.head_size + i;
        convertElements(&sequence.k[static_cast<size_t>(at)], DType::kFloat32,
                        block + keyIndex(layer_, head, p, d) * size, shape_.dtype, 1);
        convertElements(&sequence.v[static_cast<size_t>(at)], DType::kFloat32,
                        block + valueIndex(layer_, head, p, d) * size, shape_.dtype, 1);
      }
    }
  }
  // Gives up the blocks before the one of `position`.
  void drop(size_t index, int64_t position) {
    constexpr int32_t kNoBlock = 1 << 30;  // reading it would crash
    for (int64_t i = 0; i < position / shape_.tokens_per_block; ++i) tables_[index][static_cast<size_t>(i)] = kNoBlock;
  }
  const KvLayer& layer() const { return layer_; }
  std::span<const int32_t> table(size_t index) const { return tables_[index]; }

 private:
  Shape shape_;
  KvLayer layer_;
  std::vector<std::byte> memory_;
  std::vector<std::vector<int32_t>> tables_;
};

// Runs all rows of all sequences in mixed steps of at most `chunk` rows per sequence (0: everything in one step).
std::vector<std::vector<float>> runChunked(Backend& backend, Values& values, const Shape& shape,
                                           const std::vector<Sequence>& sequences, int64_t chunk) {
  Cache cache(values, shape, sequences);
  std::vector<std::vector<float>> outs;
  std::vector<int64_t> done(sequences.size(), 0);
  for (const Sequence& s : sequences) outs.emplace_back(s.q.size(), std::numeric_limits<float>::quiet_NaN());
  const auto context = backend.createContext();
  for (;;) {
    std::vector<SequenceSpan> spans;
    std::vector<size_t> members;
    std::vector<float> q;
    int32_t rows = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t left = sequences[s].length - done[s];
      if (left == 0 || (chunk > 0 && values.integer(0, 3) == 0)) continue;
      const int64_t count = chunk == 0 ? left : std::min(left, values.integer(1, chunk));
      cache.write(sequences[s], s, done[s], done[s] + count);
      cache.drop(s, shape.mask.firstPosition(done[s]));
      spans.push_back({rows, static_cast<int32_t>(count), static_cast<int32_t>(done[s]), cache.table(s)});
      members.push_back(s);
      const auto from = sequences[s].q.begin() + done[s] * shape.qWidth();
      q.insert(q.end(), from, from + count * shape.qWidth());
      rows += static_cast<int32_t>(count);
    }
    if (rows > 0) {
      const std::vector<int32_t> tokens(static_cast<size_t>(rows));
      std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
      backend.prepare({tokens, spans, {}}, *context);
      AttentionArgs args{
          kernel_test::view(q, rows, shape.qWidth()),  shape.num_heads, shape.mask, shape.score(), cache.layer(),
          kernel_test::view(out, rows, shape.qWidth())};
      backend.attention(args, *context, {});
      for (size_t i = 0; i < members.size(); ++i) {
        const auto from = out.begin() + spans[i].row_begin * shape.qWidth();
        std::copy(from, from + spans[i].num_rows * shape.qWidth(),
                  outs[members[i]].begin() + done[members[i]] * shape.qWidth());
        done[members[i]] += spans[i].num_rows;
      }
    }
    bool finished = true;
    for (size_t s = 0; s < sequences.size(); ++s) finished &= done[s] == sequences[s].length;
    if (finished) return outs;
  }
}

// The relative error of a weight is the absolute error of its score: one rounding per dimension, and six for the scale,
// the subtraction of the maximum and the power; a soft cap and a slope add a few of their own largest values. The mean
// of |v| <= 2 adds one rounding per key, and four per KV split for merging it. If the products take
// bfloat16, a weight is rounded to 8 bits; exactly() reproduces the rounding of queries.
float tolerance(const Shape& shape, DType inputs, int64_t length) {
  const float epsilon = std::numeric_limits<float>::epsilon();
  const auto head_size = static_cast<float>(shape.head_size);
  const float largest_score = 4 * head_size * kScale;
  const float largest_slope = shape.slopes.empty() ? 0 : *std::max_element(shape.slopes.begin(), shape.slopes.end());
  const float score_error =
      epsilon * ((head_size + 6) * largest_score + 8 * shape.softcap + 4 * largest_slope * static_cast<float>(length));
  const float weight_error = inputs == DType::kBFloat16 ? std::ldexp(1.0f, -8) : 0.0f;
  const int64_t whole_splits = length / kAttentionSplit;
  const auto roundings = static_cast<float>(length + whole_splits * 4 + 12);
  return 2 * 2 * (2 * score_error + roundings * epsilon) + 2 * weight_error;
}

class AttentionTest : public kernel_test::EveryVariant {
 protected:
  // Type to which the products round queries and weights.
  DType inputs(const Shape& shape) const { return linearInputType(GetParam().isa, shape.dtype); }
  void compare(const std::vector<std::vector<float>>& outs, const Shape& shape,
               const std::vector<Sequence>& sequences) const;
};

// Computes every row of a sequence in double precision, from keys and values rounded to the cache's type and queries
// rounded to `inputs`.
std::vector<float> exactly(const Shape& shape, DType inputs, const Sequence& s) {
  const auto rounded = [&](std::vector<float> values, DType dtype) {
    const auto bytes = kernel_test::asDtype(values, dtype);
    for (size_t i = 0; i < values.size(); ++i) values[i] = loadAsFloat(bytes.data(), dtype, i);
    return values;
  };
  const std::vector<float> queries = rounded(s.q, inputs), k = rounded(s.k, shape.dtype), v = rounded(s.v, shape.dtype);
  const int64_t size = shape.head_size, group = shape.num_heads / shape.num_kv_heads;
  std::vector<float> out(s.q.size());
  for (int64_t row = 0; row < s.length; ++row) {
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      const float* q = queries.data() + row * shape.qWidth() + head * size;
      const auto at = [&](int64_t key) {
        return static_cast<size_t>((key * shape.num_kv_heads + head / group) * size);
      };
      std::vector<double> sums(static_cast<size_t>(size));
      double total = 0;
      const int64_t first = shape.mask.window == 0 ? 0 : std::max<int64_t>(0, row + 1 - shape.mask.window);
      for (int64_t key = first; key <= row; ++key) {
        double score = 0;
        for (int64_t d = 0; d < size; ++d) score += double{q[d]} * k[at(key) + static_cast<size_t>(d)];
        score *= kScale;
        if (shape.softcap != 0) score = double{shape.softcap} * std::tanh(score / double{shape.softcap});
        if (!shape.slopes.empty())
          score += double{shape.slopes[static_cast<size_t>(head)]} * static_cast<double>(key - row);
        const double weight = std::exp(score);
        total += weight;
        for (int64_t d = 0; d < size; ++d) sums[static_cast<size_t>(d)] += weight * v[at(key) + static_cast<size_t>(d)];
      }
      for (int64_t d = 0; d < size; ++d) {
        out[static_cast<size_t>(row * shape.qWidth() + head * size + d)] =
            static_cast<float>(sums[static_cast<size_t>(d)] / total);
      }
    }
  }
  return out;
}

// Compares `outs`, the outputs of every sequence, with exactly().
void AttentionTest::compare(const std::vector<std::vector<float>>& outs, const Shape& shape,
                            const std::vector<Sequence>& sequences) const {
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto expected = exactly(shape, inputs(shape), sequences[s]);
    const std::vector<float> tolerances(expected.size(), tolerance(shape, inputs(shape), sequences[s].length));
    kernel_test::expectNear(outs[s], expected, tolerances, shape.text());
  }
}

TEST_P(AttentionTest, MatchesDoublePrecision) {
  Values values;
  Backend& backend = newBackend(2);
  const Shape shapes[] = {{4, 4, 16, 16}, {6, 2, 20, 8},   {8, 1, 64, 64},   {3, 1, 1, 4},   {2, 2, 17, 1},
                          {12, 4, 80, 2}, {32, 4, 64, 64}, {5, 1, 100, 128}, {200, 2, 3, 16}};
  size_t next_form = 0;
  for (Shape shape : shapes) {
    for (const DType dtype : dtypes()) {
      shape.dtype = dtype;
      std::vector<Sequence> sequences;
      for (const int64_t length : {1, 2, 63, 64, 65, 130, 7}) sequences.emplace_back(values, shape, length);
      const std::vector<Shape> forms = formsOf(shape);
      next_form = next_form % (forms.size() - 1) + 1;  // another one for each shape and type
      for (const Shape& form : {forms[0], forms[next_form]}) {
        compare(runChunked(backend, values, form, sequences, 0), form, sequences);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Whole prompts, chunks of prompts and generation in one step, with random shapes.
TEST_P(AttentionTest, MatchesDoublePrecisionOnRandomShapes) {
  Values values;
  Backend& backend = newBackend(3);
  for (int i = 0; i < 24; ++i) {
    for (const DType dtype : dtypes()) {
      const auto kv_heads = static_cast<int32_t>(values.integer(1, 8));
      // Every second head size is a whole number of vectors.
      const auto head_size = static_cast<int32_t>(i % 2 == 0 ? values.integer(2, 256) : 16 * values.integer(1, 16));
      Shape shape{kv_heads * static_cast<int32_t>(values.integer(1, 8)), kv_heads, head_size, 1 << values.integer(0, 8),
                  dtype};
      shape = formsOf(shape)[static_cast<size_t>(values.integer(0, 5))];
      if (shape.mask.window != 0) shape.mask.window = values.integer(1, 100);
      std::vector<Sequence> sequences;
      for (int s = 0; s < 3; ++s) sequences.emplace_back(values, shape, values.integer(1, 90));
      compare(runChunked(backend, values, shape, sequences, values.integer(1, 60)), shape, sequences);
      if (HasFatalFailure()) return;
    }
  }
}

// A long sequence with few heads is divided among threads, alone and together with other sequences.
TEST_P(AttentionTest, SharingASequenceOutDoesNotChangeBits) {
  Values values;
  for (const int64_t window : {0, 600}) {
    const int32_t tokens_per_block = window == 0 ? 16 : 64;
    for (const DType dtype : dtypes()) {
      Shape shape{3, 1, 16, tokens_per_block, dtype, {window}};
      if (window == 600) shape.softcap = 5;
      std::vector<Sequence> sequences;
      for (const int64_t length : {3 * kAttentionSplit + 70, kAttentionSplit, kAttentionSplit + 1, 5}) {
        sequences.emplace_back(values, shape, length);
      }
      const auto whole = runChunked(newBackend(1), values, shape, sequences, 0);
      compare(whole, shape, sequences);
      for (const int threads : {2, 8}) {
        if (!GetParam().isa && threads > 2) break;  // the reference has one thread
        const auto chunked = runChunked(newBackend(threads), values, shape, sequences, 300);
        for (size_t s = 0; s < sequences.size(); ++s) {
          kernel_test::expectSameBits(chunked[s].data(), whole[s].data(), std::ssize(whole[s]),
                                      fmt::format("{} sequence {} threads {}", shape.text(), s, threads));
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AttentionTest, ChunksBlocksThreadsAndMatesDoNotChangeBits) {
  Values values;
  for (const int32_t tokens_per_block : {1, 2, 16, 64, 128}) {
    for (const DType dtype : dtypes()) {
      // Another form for each block size.
      const Shape shape =
          formsOf({6, 2, 36, tokens_per_block, dtype})[static_cast<size_t>(std::log2(tokens_per_block)) % 6];
      std::vector<Sequence> sequences;
      for (const int64_t length : {1, 70, 129, 200}) sequences.emplace_back(values, shape, length);
      Shape whole_shape = shape;
      whole_shape.tokens_per_block = 64;
      const auto whole = runChunked(newBackend(1), values, whole_shape, sequences, 0);
      for (const int threads : {1, 2, 3}) {
        if (!GetParam().isa && threads > 1) break;  // the reference has one thread
        for (const int64_t chunk : {1, 9, 80}) {
          const auto chunked = runChunked(newBackend(threads), values, shape, sequences, chunk);
          for (size_t s = 0; s < sequences.size(); ++s) {
            kernel_test::expectSameBits(chunked[s].data(), whole[s].data(), std::ssize(whole[s]),
                                        fmt::format("{} sequence {} chunk {}", shape.text(), s, chunk));
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionTest, NaNOfOneSequenceReachesNoOther) {
  Values values;
  Backend& backend = newBackend(2);
  const Shape shape{4, 2, 20, 8, dtypes().front()};
  std::vector<Sequence> sequences;
  for (const int64_t length : {5, 70, 9}) sequences.emplace_back(values, shape, length);
  const auto clean = runChunked(backend, values, shape, sequences, 0);
  sequences[1].v[0] = sequences[1].k[69 * 40] = std::numeric_limits<float>::quiet_NaN();
  const auto spoilt = runChunked(backend, values, shape, sequences, 0);
  for (const size_t s : {0, 2}) {
    kernel_test::expectSameBits(spoilt[s].data(), clean[s].data(), std::ssize(clean[s]), "another sequence");
  }
  EXPECT_TRUE(std::isnan(spoilt[1][0])) << "a value of its first position";
  EXPECT_TRUE(std::isnan(spoilt[1][static_cast<size_t>(69 * shape.qWidth())])) << "a key of its last position";
}

// A value that a row does not attend to yet must not affect it, not even multiplied by 0. Such values are infinite or
// NaN here and lie in the same tile as the row's own.
TEST_P(AttentionTest, LaterPositionsDoNotChangeBits) {
  Values values;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int32_t tokens_per_block : {1, 16, 64, 128}) {
    for (const DType dtype : dtypes()) {
      for (const int32_t head_size : {17, 32}) {
        const Shape shape{6, 2, head_size, tokens_per_block, dtype};
        std::vector<Sequence> sequences;
        for (const int64_t length : {70, 131}) sequences.emplace_back(values, shape, length);
        const auto clean = runChunked(newBackend(2), values, shape, sequences, 0);
        const int64_t width = shape.num_kv_heads * head_size;
        const int64_t firsts[] = {69,
                                  67};  // from firsts[s] - s on, values may be infinite: an odd and an even position
        for (size_t s = 0; s < sequences.size(); ++s) {
          for (int64_t p = firsts[s] - static_cast<int64_t>(s); p < sequences[s].length; p += 7) {
            auto& v = sequences[s].v;
            v[static_cast<size_t>(p * width + p % width)] = p % 2 == 0 ? infinity : std::nanf("");
          }
        }
        const auto whole = runChunked(newBackend(2), values, shape, sequences, 0);
        const auto chunked = runChunked(newBackend(1), values, shape, sequences, 1);
        for (size_t s = 0; s < sequences.size(); ++s) {
          const int64_t before = (firsts[s] - static_cast<int64_t>(s)) * shape.qWidth();
          const std::string what = fmt::format("{} sequence {}", shape.text(), s);
          kernel_test::expectSameBits(whole[s].data(), clean[s].data(), before, what);
          for (int64_t i = 0; i < std::ssize(whole[s]); ++i) {
            const float a = whole[s][static_cast<size_t>(i)], b = chunked[s][static_cast<size_t>(i)];
            ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << what << " at " << i;
          }
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The same across KV splits: a tile's first rows attend to nothing in the KV split that holds the value, or the window
// of its last rows begins after it.
TEST_P(AttentionTest, NonFiniteValuesInAnotherKvSplitDoNotChangeBits) {
  Values values;
  for (const int64_t window : {0, 40}) {
    for (const DType dtype : dtypes()) {
      const Shape shape{8, 2, 20, 64, dtype, {window}};
      std::vector<Sequence> sequences;
      for (const int64_t length : {530, 600}) sequences.emplace_back(values, shape, length);
      const auto clean = runChunked(newBackend(2), values, shape, sequences, 0);
      const int64_t width = shape.num_kv_heads * shape.head_size;
      const int64_t spoilt = window == 0 ? kAttentionSplit + 1 : kAttentionSplit - 5;
      for (Sequence& sequence : sequences) {
        sequence.v[static_cast<size_t>(spoilt * width)] = std::numeric_limits<float>::infinity();
        sequence.v[static_cast<size_t>(spoilt * width + width - 1)] = std::nanf("");
      }
      const auto whole = runChunked(newBackend(2), values, shape, sequences, 0);
      const auto chunked = runChunked(newBackend(1), values, shape, sequences, 100);
      for (size_t s = 0; s < sequences.size(); ++s) {
        const std::string what = fmt::format("{} sequence {}", shape.text(), s);
        kernel_test::expectSameBits(whole[s].data(), clean[s].data(), spoilt * shape.qWidth(), what + " before");
        if (window > 0 && spoilt + window < sequences[s].length) {
          const int64_t from = (spoilt + window) * shape.qWidth();
          kernel_test::expectSameBits(whole[s].data() + from, clean[s].data() + from, std::ssize(clean[s]) - from,
                                      what + " after");
        }
        for (int64_t i = 0; i < std::ssize(whole[s]); ++i) {
          const float a = whole[s][static_cast<size_t>(i)], b = chunked[s][static_cast<size_t>(i)];
          ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << what << " at " << i;
        }
      }
      if (HasFatalFailure()) return;
    }
  }
}

// The weight of the largest score is exactly 1, however large the score is: a row that attends to one position, or
// whose other scores are far below, returns the value itself.
TEST_P(AttentionTest, TheLargestScoreHasWeightOne) {
  Values values;
  for (const DType dtype : dtypes()) {
    const Shape shape{2, 1, 32, 64, dtype};
    for (const float size : {1.0f, 37.0f, 150.0f}) {  // float16 keys are below 65,504
      std::vector<Sequence> sequences;
      sequences.emplace_back(values, shape, 5);
      Sequence& s = sequences[0];
      for (float& q : s.q) q = size * size * 1e3f;
      // The keys grow, so that each row's largest score is its last one, far above the others.
      for (size_t i = 0; i < s.k.size(); ++i) {
        const size_t position = i / 32;
        s.k[i] = size * static_cast<float>(position + 1);
      }
      const auto out = runChunked(newBackend(1), values, shape, sequences, 0);
      for (size_t i = 0; i < out[0].size(); ++i) {
        const size_t row = i / 64, d = i % 32;
        const auto value = kernel_test::asDtype({s.v[row * 32 + d]}, dtype);
        ASSERT_EQ(out[0][i], loadAsFloat(value.data(), dtype, 0)) << "size " << size << " row " << row;
      }
    }
  }
}

TEST_P(AttentionTest, ScalesMayBeZeroOrNegative) {
  Values values;
  Backend& backend = newBackend(2);
  for (const DType dtype : dtypes()) {
    const Shape shape{4, 2, 20, 16, dtype};
    std::vector<Sequence> sequences, negated;
    sequences.emplace_back(values, shape, 70);
    negated = sequences;
    for (float& q : negated[0].q) q = -q;
    Shape scaled = shape;
    scaled.scale = -kScale;
    compare(runChunked(backend, values, scaled, negated, 0), shape, sequences);
    scaled.scale = 0;
    const auto zero = runChunked(backend, values, scaled, sequences, 0);
    // With a scale of zero, every row is the mean of its values.
    for (int64_t d = 0; d < shape.head_size; ++d) {
      double sum = 0;
      for (int64_t p = 0; p < 70; ++p) {
        const auto value = kernel_test::asDtype({sequences[0].v[static_cast<size_t>(p * 40 + d)]}, dtype);
        sum += double{loadAsFloat(value.data(), dtype, 0)};
      }
      EXPECT_NEAR(zero[0][static_cast<size_t>(69 * shape.qWidth() + d)], sum / 70, 1e-5);
    }
    if (HasFatalFailure()) return;
  }
}

// Infinite and NaN values at positions that left the window must not change any output. The cache of a step even lacks
// the blocks before the window's.
TEST_P(AttentionTest, PositionsBeforeTheWindowDoNotChangeBits) {
  Values values;
  for (const int32_t tokens_per_block : {1, 16, 64, 128}) {
    for (const DType dtype : dtypes()) {
      for (const int32_t head_size : {17, 32}) {
        const Shape shape{6, 2, head_size, tokens_per_block, dtype, {.window = 30}};
        std::vector<Sequence> sequences;
        for (const int64_t length : {170, 131}) sequences.emplace_back(values, shape, length);
        const auto clean = runChunked(newBackend(2), values, shape, sequences, 0);
        const int64_t width = shape.num_kv_heads * head_size, last = 70;
        for (Sequence& sequence : sequences) {
          for (int64_t p = 0; p <= last; p += 7) {
            auto& v = sequence.v;
            v[static_cast<size_t>(p * width + p % width)] =
                p % 2 == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
          }
        }
        for (const int64_t chunk : {0, 1, 40}) {
          const auto spoilt = runChunked(newBackend(2), values, shape, sequences, chunk);
          for (size_t s = 0; s < sequences.size(); ++s) {
            const int64_t from = (last + shape.mask.window) * shape.qWidth();
            kernel_test::expectSameBits(spoilt[s].data() + from, clean[s].data() + from, std::ssize(clean[s]) - from,
                                        fmt::format("{} sequence {} chunk {}", shape.text(), s, chunk));
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

CHORUS_FOR_EVERY_VARIANT(Attention, AttentionTest);
}  // namespace
}  // namespace chorus
