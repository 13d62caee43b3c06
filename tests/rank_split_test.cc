// Compares the converter's rank files with an independent splitter: plain code that follows TensorRT-LLM's rules and
// shares nothing with src/checkpoint/shard.cc. Every tensor of every rank is equal byte for byte, over random small
// models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.h"
#include "convert/convert_model.h"
#include "formats/safetensors.h"
#include "random_llama.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

constexpr uint64_t kFirstSeed = 31000;
constexpr int kModels = 12;

int64_t rowsOf(const PlainTensor& t) { return t.shape[0]; }
int64_t colsOf(const PlainTensor& t) { return t.shape.size() > 1 ? t.shape[1] : 1; }

// Rows [begin, end). Rows beyond the tensor's last are zeros.
PlainTensor rows(const PlainTensor& t, int64_t begin, int64_t end) {
  PlainTensor part = t;
  part.shape[0] = end - begin;
  part.values.clear();
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t c = 0; c < colsOf(t); ++c) {
      part.values.push_back(r < rowsOf(t) ? t.values[static_cast<size_t>(r * colsOf(t) + c)] : 0.0f);
    }
  }
  return part;
}

PlainTensor columns(const PlainTensor& t, int64_t parts, int64_t which) {
  const int64_t each = t.shape.at(1) / parts;
  PlainTensor part{.shape = {t.shape[0], each}};
  for (int64_t r = 0; r < t.shape[0]; ++r) {
    for (int64_t c = which * each; c < (which + 1) * each; ++c) {
      part.values.push_back(t.values[static_cast<size_t>(r * t.shape[1] + c)]);
    }
  }
  return part;
}

PlainTensor rowPart(const PlainTensor& t, int64_t parts, int64_t which) {
  const int64_t each = rowsOf(t) / parts;
  return rows(t, which * each, (which + 1) * each);
}

PlainTensor below(const PlainTensor& upper, const PlainTensor& lower) {
  PlainTensor both = upper;
  both.shape[0] += lower.shape[0];
  both.values.insert(both.values.end(), lower.values.begin(), lower.values.end());
  return both;
}

// Key or value heads of one rank. They are split like other rows, but if there are fewer heads than ranks, each head is
// repeated for tp / heads consecutive ranks.
PlainTensor heads(const PlainTensor& t, int64_t count, int64_t size, int64_t tp, int64_t which) {
  PlainTensor repeated = rows(t, 0, 0);
  const int64_t times = std::max<int64_t>(1, tp / count);
  for (int64_t head = 0; head < count; ++head) {
    for (int64_t i = 0; i < times; ++i) repeated = below(repeated, rows(t, head * size, (head + 1) * size));
  }
  return rowPart(repeated, tp, which);
}

PlainTensor vocabulary(const PlainTensor& t, int64_t tp, int64_t which) {
  int64_t padded = rowsOf(t);
  while (padded % tp != 0) ++padded;
  return rows(t, which * padded / tp, (which + 1) * padded / tp);
}

PlainTensors split(const RandomLlama& m, const Cut& cut, int64_t rank) {
  const int64_t tp = cut.tp_size, pp = cut.pp_size;
  const int64_t t = rank % tp, p = rank / tp;  // tensor-parallel ranks are consecutive
  const auto& from = m.tensors;
  const PlainTensor& table = from.at("model.embed_tokens.weight");
  PlainTensors out;
  if (p == 0) {
    out["transformer.vocab_embedding.weight"] = !cut.use_parallel_embedding       ? table
                                                : cut.embedding_sharding_dim == 0 ? vocabulary(table, tp, t)
                                                                                  : columns(table, tp, t);
  }
  // If the layers do not divide evenly, the first stages have one layer more.
  int64_t begin = 0;
  for (int64_t stage = 0; stage < p; ++stage) begin += m.layers / pp + (stage < m.layers % pp ? 1 : 0);
  const int64_t count = m.layers / pp + (p < m.layers % pp ? 1 : 0);
  for (int64_t local = 0; local < count; ++local) {
    const std::string source = "model.layers." + std::to_string(begin + local) + ".";
    const std::string target = "transformer.layers." + std::to_string(local) + ".";
    out[target + "input_layernorm.weight"] = from.at(source + "input_layernorm.weight");
    out[target + "post_layernorm.weight"] = from.at(source + "post_attention_layernorm.weight");
    for (const std::string kind : {"weight", "bias"}) {
      if (kind == "weight" || m.attention_bias) {
        const PlainTensor q = rowPart(from.at(source + "self_attn.q_proj." + kind), tp, t);
        const PlainTensor k = heads(from.at(source + "self_attn.k_proj." + kind), m.kv_heads, m.head_size, tp, t);
        const PlainTensor v = heads(from.at(source + "self_attn.v_proj." + kind), m.kv_heads, m.head_size, tp, t);
        out[target + "attention.qkv." + kind] = below(below(q, k), v);
        const PlainTensor& dense = from.at(source + "self_attn.o_proj." + kind);
        out[target + "attention.dense." + kind] = kind == "bias" ? dense : columns(dense, tp, t);
      }
      if (kind == "weight" || m.mlp_bias) {
        out[target + "mlp.fc." + kind] = rowPart(from.at(source + "mlp.gate_proj." + kind), tp, t);
        out[target + "mlp.gate." + kind] = rowPart(from.at(source + "mlp.up_proj." + kind), tp, t);
        const PlainTensor& proj = from.at(source + "mlp.down_proj." + kind);
        out[target + "mlp.proj." + kind] = kind == "bias" ? proj : columns(proj, tp, t);
      }
    }
  }
  if (p == pp - 1) {
    out["transformer.ln_f.weight"] = from.at("model.norm.weight");
    // A tied output head is left out if the rank holds the table's rows.
    const bool columns_only = cut.use_parallel_embedding && cut.embedding_sharding_dim == 1 && tp > 1;
    if (!m.tied || pp > 1 || columns_only) {
      out["lm_head.weight"] = vocabulary(m.tied ? table : from.at("lm_head.weight"), tp, t);
    }
  }
  return out;
}

// The values are exact in every dtype.
std::vector<std::byte> encode(const PlainTensor& tensor, DType dtype) {
  std::vector<std::byte> bytes(tensor.values.size() * dtypeSize(dtype));
  convertElements(tensor.values.data(), DType::kFloat32, bytes.data(), dtype, tensor.values.size());
  return bytes;
}

TEST(RankSplit, EveryRankFileIsTheIndependentSplitters) {
  const TempDir root;
  size_t compared = 0, repeated_heads = 0, padded = 0, tied = 0;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kModels; ++seed) {
    std::mt19937_64 rng(seed);
    RandomLlama model = randomLlamaShape(rng);
    fillWeights(model, rng);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + model.describe());
    const auto dir = root.path() / std::to_string(seed);
    writeModel(model, dir);
    tied += model.tied;
    for (const int32_t tp : {1, 2, 4}) {
      for (const int32_t pp : {1, 2, 3}) {
        const Cut cut{.tp_size = tp,
                      .pp_size = pp,
                      .use_parallel_embedding = rng() % 2 == 0,
                      .embedding_sharding_dim = static_cast<int32_t>(rng() % 2)};
        const DType dtype = std::array{DType::kFloat32, DType::kBFloat16, DType::kFloat16}[rng() % 3];
        SCOPED_TRACE(cut.name() + " " + std::string(dtypeName(dtype)));
        repeated_heads += model.kv_heads < tp;
        padded += model.vocab % tp != 0;
        const auto checkpoint = root.path() / "checkpoint";
        convertModel(dir, checkpoint,
                     {.dtype = dtype,
                      .tp_size = tp,
                      .pp_size = pp,
                      .use_parallel_embedding = cut.use_parallel_embedding,
                      .embedding_sharding_dim = cut.embedding_sharding_dim,
                      .workers = 1});
        for (int32_t rank = 0; rank < tp * pp; ++rank) {
          const std::string file = "rank" + std::to_string(rank) + ".safetensors";
          const Safetensors written = Safetensors::open(checkpoint / file);
          const PlainTensors expected = split(model, cut, rank);
          std::vector<std::string> names;
          for (const auto& [name, _] : expected) names.push_back(name);
          EXPECT_THAT(written.names(), testing::UnorderedElementsAreArray(names)) << file;
          for (const auto& [name, tensor] : expected) {
            const TensorView* view = written.find(name);
            if (view == nullptr) continue;
            EXPECT_EQ(view->dtype, dtype) << file << " " << name;
            EXPECT_EQ(view->shape, tensor.shape) << file << " " << name;
            const auto bytes = encode(tensor, dtype);
            EXPECT_TRUE(std::ranges::equal(view->bytes, bytes)) << file << " " << name;
            ++compared;
          }
        }
        EXPECT_FALSE(std::filesystem::exists(checkpoint / ("rank" + std::to_string(tp * pp) + ".safetensors")));
      }
    }
  }
  // The random models covered the cases that this test is for.
  EXPECT_GT(repeated_heads, 0u);
  EXPECT_GT(padded, 0u);
  EXPECT_GT(tied, 0u);
  EXPECT_LT(tied, static_cast<size_t>(kModels));
  std::printf("%zu tensors of rank files compared\n", compared);
}

TEST(RankSplit, SizesThatDoNotDivideAreRefusedByName) {
  const TempDir root;
  std::mt19937_64 rng(kFirstSeed);
  const auto refusal = [&](const auto& change, Cut cut) {
    RandomLlama model;
    change(model);
    fillWeights(model, rng);
    const auto dir = root.path() / "model";
    writeModel(model, dir);
    try {
      convertModel(dir, root.path() / "checkpoint",
                   {.tp_size = cut.tp_size,
                    .pp_size = cut.pp_size,
                    .use_parallel_embedding = cut.use_parallel_embedding,
                    .embedding_sharding_dim = cut.embedding_sharding_dim,
                    .workers = 1});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using testing::EndsWith;
  EXPECT_THAT(refusal(
                  [](RandomLlama& m) {
                    m.heads = 6;
                    m.kv_heads = 2;
                  },
                  {.tp_size = 4}),
              EndsWith("num_attention_heads 6 is not a multiple of tp_size 4"));
  EXPECT_THAT(refusal(
                  [](RandomLlama& m) {
                    m.heads = 6;
                    m.kv_heads = 3;
                  },
                  {.tp_size = 2}),
              EndsWith("num_key_value_heads 3 and tp_size 2: one must be a multiple of the other"));
  EXPECT_THAT(refusal([](RandomLlama& m) { m.mlp = 27; }, {.tp_size = 2}),
              EndsWith("intermediate_size 27 is not a multiple of tp_size 2"));
  EXPECT_THAT(refusal([](RandomLlama& m) { m.hidden = 21; },
                      {.tp_size = 2, .use_parallel_embedding = true, .embedding_sharding_dim = 1}),
              EndsWith("hidden_size 21 is not a multiple of tp_size 2"));
  EXPECT_THAT(refusal([](RandomLlama&) {}, {.pp_size = 4}), EndsWith("mapping.pp_size is 4; it must be from 1 to 3"));
  EXPECT_EQ(refusal([](RandomLlama& m) { m.hidden = 21; }, {.tp_size = 2}), "");
}

}  // namespace
}  // namespace chorus::test
