#include <algorithm>
#include <optional>
#include <tuple>

#include "base/aligned_buffer.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using EmbeddingTest = kernel_test::EveryVariant;
using GatherRowsTest = kernel_test::EveryVariant;

TEST_P(EmbeddingTest, RowsAreExactAndTokensOutsideTheShardAreZero) {
  Values values;
  Backend& backend = newBackend(2);
  for (const DType dtype : dtypes()) {
    const int64_t vocab = 50, cols = 1027;
    const auto table = kernel_test::asDtype(values.reals(vocab * cols), dtype);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 120; ++i) tokens.push_back(static_cast<int32_t>(values.integer(0, 160)));
    std::vector<float> out(tokens.size() * cols, -1.0f);
    const auto context = kernel_test::prepared(backend, {.tokens = tokens});
    backend.embedding({.table = {table.data(), dtype, vocab, 100}, .out = kernel_test::view(out, 120, cols)}, *context,
                      {});
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t row = tokens[i] - 100;
      for (int64_t c = 0; c < cols; ++c) {
        const float expected =
            row < 0 || row >= vocab ? 0.0f : loadAsFloat(table.data(), dtype, static_cast<size_t>(row * cols + c));
        ASSERT_EQ(out[i * cols + static_cast<size_t>(c)], expected) << "token " << tokens[i];
      }
    }
  }
}

// Shard is one vocabulary shard of an embedding [vocab, cols] with its adapters. AdaptedEmbedding is the whole
// embedding; exactly() is what PEFT computes with it, in double precision.
struct Shard {
  int64_t first = 0, vocab = 0;  // of the base table
  int64_t own_vocab = 0;  // rows of an adapter's table or A from `first` on; the last shard also has the added tokens
  std::vector<std::byte> table, own;  // [vocab, cols]
  std::vector<std::byte> a;           // [own_vocab, rank]
  std::vector<int32_t> replaced;      // tokens
  std::vector<float> replacements;    // [replaced, cols]
};
struct AdaptedEmbedding {
  static constexpr int64_t kVocab = 90, kAdded = 7;
  DType dtype;
  int64_t cols, rank;
  std::vector<float> base, own, a, b, magnitude, replacements;  // of all tokens, rounded to dtype
  std::vector<int32_t> replaced = {3, 41, 44, 45, 89, 93};
  AlignedBuffer packed;
  float scale = 1.75f;

  AdaptedEmbedding(Values& values, DType type, int64_t columns, int64_t r) : dtype(type), cols(columns), rank(r) {
    const auto reals = [&](int64_t count) {
      auto all = values.reals(count);
      const auto bytes = kernel_test::asDtype(all, dtype);
      for (size_t i = 0; i < all.size(); ++i) all[i] = loadAsFloat(bytes.data(), dtype, i);
      return all;
    };
    base = reals(kVocab * cols);
    own = reals((kVocab + kAdded) * cols);
    a = reals((kVocab + kAdded) * rank);
    b = reals(cols * rank);
    magnitude = values.reals(cols, 0.5f, 1.5f);
    replacements = values.reals(std::ssize(replaced) * cols);
    packed = AlignedBuffer(static_cast<size_t>(packedBytes(dtype, cols, rank)));
    packRows(kernel_test::asDtype(b, dtype).data(), dtype, cols, rank, 0, packed.data());
  }
  Shard shard(int64_t first, int64_t end) const {
    Shard s;
    s.first = first;
    s.vocab = end - first;
    s.own_vocab = end == kVocab ? s.vocab + kAdded : s.vocab;
    const auto rows = [&](const std::vector<float>& of, int64_t count, int64_t width) {
      return kernel_test::asDtype({of.begin() + first * width, of.begin() + (first + count) * width}, dtype);
    };
    s.table = rows(base, s.vocab, cols);
    s.own = rows(own, s.own_vocab, cols);
    s.a = rows(a, s.own_vocab, rank);
    for (size_t i = 0; i < replaced.size(); ++i) {
      if (replaced[i] < first || replaced[i] >= first + s.own_vocab) continue;
      s.replaced.push_back(replaced[i]);
      const auto row = replacements.begin() + static_cast<int64_t>(i) * cols;
      s.replacements.insert(s.replacements.end(), row, row + cols);
    }
    return s;
  }
  // kind: bits of what the group has. 1: its own table, 2: replaced rows, 4: a LoRA term, 8: the term's magnitude.
  double exactly(int kind, int32_t token, int64_t c) const {
    const auto at = [&](const std::vector<float>& of, int64_t row) {
      return double{of[static_cast<size_t>(row * cols + c)]};
    };
    const bool own_table = (kind & 1) != 0;
    double value = own_table ? at(own, token) : token < kVocab ? at(base, token) : 0.0;
    const auto found = std::find(replaced.begin(), replaced.end(), token);
    if ((kind & 2) != 0 && found != replaced.end()) value = at(replacements, found - replaced.begin());
    if ((kind & 4) == 0) return value;
    double sum = 0;
    for (int64_t r = 0; r < rank; ++r) {
      sum += double{a[static_cast<size_t>(token * rank + r)]} * b[static_cast<size_t>(c * rank + r)];
    }
    value += double{scale} * sum;
    return (kind & 8) != 0 ? value * magnitude[static_cast<size_t>(c)] : value;
  }
  // Largest error from rounding A's row to bfloat16 and from rounding every product.
  double tolerance(int kind, int32_t token, int64_t c, std::optional<Isa> isa) const {
    double sum = std::abs(exactly(kind & 3, token, c));
    double products = 0;
    for (int64_t r = 0; r < rank; ++r) {
      products += std::abs(double{a[static_cast<size_t>(token * rank + r)]} * b[static_cast<size_t>(c * rank + r)]);
    }
    sum += scale * products;
    const bool rounds = linearInputType(isa, dtype) == DType::kBFloat16;
    return 2 * (static_cast<double>(rank + 4) * 1.2e-7 * sum + (rounds ? std::ldexp(scale * products, -8) : 0.0));
  }
};

// On every instruction set: rows of groups match PEFT, rows without a group match the base, every row has the bits that
// it has alone, and two vocabulary shards add up to the whole.
TEST_P(EmbeddingTest, GroupsHaveTablesReplacementsAndParts) {
  Values values;
  std::vector<std::optional<Isa>> isas;
  if (!GetParam().isa) isas = {std::nullopt};
  if (GetParam().isa) isas.assign(availableIsas().begin(), availableIsas().end());
  for (const auto& [dtype, cols, rank] : {std::tuple{DType::kFloat32, 100, 8},
                                          {DType::kBFloat16, 129, 17},
                                          {DType::kFloat16, 48, 1},
                                          {DType::kBFloat16, 1040, 64}}) {
    const AdaptedEmbedding adapted(values, dtype, cols, rank);
    constexpr int kKinds = 16;
    const int64_t rows = 150;
    std::vector<int32_t> tokens;
    std::vector<int> kind_of;  // -1: no group
    std::vector<std::vector<RowRange>> ranges(kKinds);
    for (int32_t r = 0; r < rows; ++r) {
      const auto kind = static_cast<int>(r % 3 != 0 && r > 0 ? kind_of.back() : values.integer(-1, kKinds - 1));
      kind_of.push_back(kind);
      const bool grown = kind >= 0 && (kind & 1) != 0;
      tokens.push_back(static_cast<int32_t>(
          values.integer(0, AdaptedEmbedding::kVocab - 1 + (grown ? AdaptedEmbedding::kAdded : 0))));
      if (r % 5 == 0) tokens.back() = adapted.replaced[static_cast<size_t>(values.integer(0, grown ? 5 : 4))];
      if (kind < 0) continue;
      auto& list = ranges[static_cast<size_t>(kind)];
      if (!list.empty() && list.back().end == r) {
        list.back().end = r + 1;
      } else {
        list.push_back({r, r + 1});
      }
    }
    const auto compute = [&](Backend& backend, const Shard& shard, int64_t first_row, int64_t count) {
      const EmbeddingTable own{shard.own.data(), dtype, shard.own_vocab, shard.first};
      std::vector<EmbeddingPart> parts(2);
      for (EmbeddingPart& part : parts) {
        part = {{shard.a.data(), dtype, shard.own_vocab, shard.first},
                {adapted.packed.data(), dtype, cols, rank},
                adapted.scale,
                nullptr};
      }
      parts[1].magnitude = adapted.magnitude.data();
      std::vector<std::vector<RowRange>> own_ranges = ranges;
      if (count == 1) {
        for (auto& list : own_ranges) list.clear();
        if (kind_of[static_cast<size_t>(first_row)] >= 0) {
          own_ranges[static_cast<size_t>(kind_of[static_cast<size_t>(first_row)])].push_back({0, 1});
        }
      }
      std::vector<EmbeddingGroup> groups;
      for (int kind = 0; kind < kKinds; ++kind) {
        EmbeddingGroup group;
        group.ranges = own_ranges[static_cast<size_t>(kind)];
        if (group.ranges.empty()) continue;
        if ((kind & 1) != 0) group.table = own;
        if ((kind & 2) != 0) {
          group.replaced_tokens = shard.replaced.data();
          group.replaced_rows = shard.replacements.data();
          group.replaced = std::ssize(shard.replaced);
        }
        if ((kind & 4) != 0) group.parts = {&parts[(kind & 8) != 0 ? 1 : 0], 1};
        groups.push_back(group);
      }
      std::vector<float> out(static_cast<size_t>(count * cols), -1.0f);
      const auto own_tokens = std::span(tokens).subspan(static_cast<size_t>(first_row), static_cast<size_t>(count));
      const auto context = kernel_test::prepared(backend, {.tokens = own_tokens, .groups = {.embedding = groups}});
      backend.embedding({.table = {shard.table.data(), dtype, shard.vocab, shard.first},
                         .out = kernel_test::view(out, count, cols),
                         .groups = kernel_test::allOf(groups)},
                        *context, {});
      return out;
    };
    for (const std::optional<Isa>& isa : isas) {
      std::vector<std::unique_ptr<Backend>> others;
      const auto backendOf = [&](int threads) -> Backend& {
        if (isa == GetParam().isa) return newBackend(threads);
        others.push_back(createBackend({.name = "cpu", .threads = threads, .isa = isa}));
        return *others.back();
      };
      Backend &one = backendOf(1), &three = backendOf(3);
      const Shard whole = adapted.shard(0, AdaptedEmbedding::kVocab);
      const auto out = compute(one, whole, 0, rows);
      kernel_test::expectSameBits(compute(three, whole, 0, rows).data(), out.data(), rows * cols, "threads");
      const auto low = compute(one, adapted.shard(0, 44), 0, rows), high = compute(one, adapted.shard(44, 90), 0, rows);
      for (int64_t r = 0; r < rows; ++r) {
        const int kind = kind_of[static_cast<size_t>(r)];
        const int32_t token = tokens[static_cast<size_t>(r)];
        const auto alone = compute(three, whole, r, 1);
        kernel_test::expectSameBits(alone.data(), out.data() + r * cols, cols, fmt::format("row {} alone", r));
        for (int64_t c = 0; c < cols; ++c) {
          const auto at = static_cast<size_t>(r * cols + c);
          const double expected = adapted.exactly(std::max(kind, 0), token, c);
          const double tolerance = kind < 4 ? 0.0 : adapted.tolerance(kind, token, c, isa);
          ASSERT_NEAR(out[at], expected, tolerance) << "row " << r << " token " << token << " kind " << kind;
          ASSERT_EQ(low[at] + high[at], out[at]) << "shards of row " << r << " token " << token << " kind " << kind;
        }
      }
    }
  }
}

TEST_P(GatherRowsTest, CopiesTheRowsThatNeedLogits) {
  Values values;
  Backend& backend = newBackend(2);
  auto x = values.reals(90 * 700);
  const std::vector<int32_t> rows = {0, 3, 4, 41, 89};
  const auto context = kernel_test::prepared(backend, {.logits_rows = rows});
  std::vector<float> out(rows.size() * 700);
  backend.gatherRows({.x = kernel_test::view(x, 90, 700), .out = kernel_test::view(out, 5, 700)}, *context, {});
  for (size_t i = 0; i < rows.size(); ++i) {
    kernel_test::expectSameBits(out.data() + i * 700, x.data() + rows[i] * 700, 700, "row");
  }
}

TEST_P(GatherRowsTest, CopiesAllRowsBetweenViews) {
  Values values;
  Backend& backend = newBackend(2);
  auto x = values.reals(90 * 700);
  std::vector<float> out(90 * 800, -5.0f);
  backend.gatherRows({.x = {x.data() + 3, 90, 600, 700}, .rows = RowsToGather::kAll, .out = {out.data(), 90, 600, 800}},
                     *backend.createContext(), {});
  for (int64_t r = 0; r < 90; ++r) {
    kernel_test::expectSameBits(out.data() + r * 800, x.data() + 3 + r * 700, 600, "row");
    EXPECT_EQ(out[static_cast<size_t>(r * 800 + 600)], -5.0f);
  }
}

TEST_P(EmbeddingTest, NoTokensTouchNothing) {
  Backend& backend = newBackend(2);
  std::vector<float> table(8, 1.0f), out(4, -5.0f);
  backend.embedding({.table = {table.data(), DType::kFloat32, 2, 0}, .out = kernel_test::view(out, 0, 4)},
                    *kernel_test::prepared(backend, {}), {});
  EXPECT_EQ(out, std::vector<float>(4, -5.0f));
}

CHORUS_FOR_EVERY_VARIANT(Embedding, EmbeddingTest);
CHORUS_FOR_EVERY_VARIANT(GatherRows, GatherRowsTest);
}  // namespace
}  // namespace chorus
