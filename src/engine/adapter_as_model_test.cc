// An adapter that replaces every weight of the base is equal to another model: its rows get the other model's bits,
// also in a batch with rows of the base, and also if the other model's vocabulary is larger.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine_layout.h"
#include "engine/testing/random_engine.h"

namespace chorus {
namespace {

constexpr int64_t kVocab = 45;
constexpr int32_t kPrompt = 11;

struct Layout {
  int32_t tp_size = 1, pp_size = 1;
  int embedding = -1;  // the dimension that is cut over ranks, or -1
};

ModelConfig configOf(const Layout& layout, int64_t vocab) {
  ModelConfig config = randomModel({.tp_size = layout.tp_size, .pp_size = layout.pp_size}, vocab);
  config.use_parallel_embedding = layout.embedding >= 0;
  config.embedding_sharding_dim = std::max(0, layout.embedding);
  config.finalize("test");
  return config;
}

class AdapterAsModelTest : public RandomEngineTest, public ::testing::WithParamInterface<Layout> {
 protected:
  RankGroup makeGroup(int64_t vocab, uint64_t seed, const std::string& backend) {
    BuildConfig build = smallBuild();
    build.max_batch_size = 3;  // fewer than the logits that a step asks for
    build.max_num_tokens = 128;
    return RankGroup(RankGroup::loadEngines(makeEngine(configOf(GetParam(), vocab), build, seed)),
                     {.name = backend, .threads = 2}, {.kv_blocks = 32});
  }

  // Copies data to the memory of one rank's backend; `parts` owns the copies.
  struct Uploads {
    Backend& backend;
    AdapterParts& parts;
    const std::byte* operator()(const void* data, int64_t bytes) const {
      DeviceBuffer buffer = backend.allocate(static_cast<size_t>(bytes));
      backend.upload(buffer.data(), data, static_cast<size_t>(bytes), {});
      const auto* device = buffer.as<std::byte>();
      parts.own(std::move(buffer), static_cast<size_t>(bytes));
      return device;
    }
    PackedWeight operator()(PackedWeight weight) const {
      weight.data = (*this)(weight.data, weightPacker("cpu").bytes(weight.format(), weight.out, weight.in));
      return weight;
    }
    const float* vector(const float* data, int64_t count) const {
      return reinterpret_cast<const float*>((*this)(data, count * 4));
    }
  };

  // `other`'s output head in the form that a rank of a model with kVocab tokens needs: the rank's share of these
  // tokens, then all further tokens.
  static PackedWeight headOf(const RankGroup& other, int64_t share, int32_t tp_rank, std::vector<std::byte>& memory) {
    const ModelConfig& config = other.engine().config();
    const WeightPacker& packer = other.engine().packer();
    const int64_t own_share = vocabularyShare(config), in = config.hidden_size;
    const int64_t added = config.vocab_size - kVocab;
    const int32_t first_rank = (config.mapping.pp_size - 1) * config.mapping.tp_size;
    const auto row = [&](int64_t token) {
      std::vector<float> values(static_cast<size_t>(in));
      const auto holder = static_cast<int32_t>(first_rank + token / own_share);
      packer.unpackRow(other.session(holder).engine().linear("lm_head", own_share, in), token % own_share,
                       values.data());
      std::vector<std::byte> bytes(values.size() * dtypeSize(config.dtype));
      convertElements(values.data(), DType::kFloat32, bytes.data(), config.dtype, values.size());
      return bytes;
    };
    memory.assign(static_cast<size_t>(packer.bytes(config.dtype, share + added, in)), std::byte{});
    for (int64_t r = 0; r < share + added; ++r) {
      const int64_t token = r < share ? tp_rank * share + r : kVocab + r - share;
      if (r < share && token >= kVocab) continue;
      packer.packRows(row(token).data(), config.dtype, 1, in, r, memory.data(), nullptr);
    }
    return {memory.data(), config.dtype, share + added, in};
  }

  // Makes an adapter of `base` from all weights of `other`.
  static PreparedAdapter adapterOf(const RankGroup& base, const RankGroup& other) {
    const ModelConfig& config = other.engine().config();
    const PreparedAdapter adapter{.id = AdapterId{77}, .vocab_size = config.vocab_size};
    const Mapping& mapping = config.mapping;
    const int64_t heads = config.num_attention_heads / mapping.tp_size * config.head_size;
    const int64_t kv_heads = std::max(1, config.num_key_value_heads / mapping.tp_size);
    const int64_t qkv = heads + 2 * kv_heads * config.head_size;
    const int64_t hidden = config.hidden_size, mlp = config.intermediate_size / mapping.tp_size;
    for (int32_t rank = 0; rank < base.size(); ++rank) {
      const Engine& engine = other.session(rank).engine();
      auto parts = std::make_shared<AdapterParts>(engine.layers().count());
      const Uploads upload{base.session(rank).backend(), *parts};
      for (int32_t i = 0; i < engine.layers().count(); ++i) {
        const std::string layer = fmt::format("transformer.layers.{}.", i);
        parts->addWeight(i, LinearId::kQkv, upload(engine.linear(layer + "attention.qkv", qkv, hidden)));
        parts->addWeight(i, LinearId::kDense, upload(engine.linear(layer + "attention.dense", hidden, heads)));
        parts->addWeight(i, LinearId::kFc, upload(engine.linear(layer + "mlp.fc_gate", 2 * mlp, hidden)));
        parts->addWeight(i, LinearId::kProj, upload(engine.linear(layer + "mlp.proj", hidden, mlp)));
        parts->addNorm(i, NormId::kAttentionIn,
                       {.weight = upload.vector(engine.vector(layer + "input_layernorm", hidden), hidden)});
        parts->addNorm(i, NormId::kMlpIn,
                       {.weight = upload.vector(engine.vector(layer + "post_layernorm", hidden), hidden)});
      }
      if (mapping.ppRank(rank) == 0) {
        const bool rows = config.use_parallel_embedding && config.embedding_sharding_dim == 0;
        const bool columns = config.use_parallel_embedding && config.embedding_sharding_dim == 1;
        const int64_t vocab = rows ? vocabularyShare(config) : config.vocab_size;
        const int64_t cols = columns ? hidden / mapping.tp_size : hidden;
        const Engine::Table table = engine.table("transformer.vocab_embedding", vocab, cols);
        AdapterEmbedding embedding;
        embedding.table = {upload(table.data, vocab * cols * 2), table.dtype, vocab,
                           rows ? mapping.tpRank(rank) * vocab : 0};
        parts->addEmbedding(embedding);
      }
      if (mapping.ppRank(rank) + 1 == mapping.pp_size) {
        parts->addNorm(kOutsideLayers, NormId::kFinal,
                       {.weight = upload.vector(engine.vector("transformer.ln_f", hidden), hidden)});
        std::vector<std::byte> memory;
        const int64_t share = vocabularyShare(base.engine().config());
        parts->addWeight(kOutsideLayers, LinearId::kHead, upload(headOf(other, share, mapping.tpRank(rank), memory)));
      }
      parts->addVocabulary(config.vocab_size, config.vocab_size);
      base.session(rank).adapters().add(adapter.id, parts);
    }
    return adapter;
  }

  // Runs a step with sequences of kPrompt tokens. Sequence i uses adapters[i]; null: no adapter. Returns the logits of
  // several rows of each sequence; each row is as wide as the vocabulary of its model or adapter.
  static std::vector<std::vector<float>> step(RankGroup& ranks, const std::vector<const PreparedAdapter*>& adapters,
                                              const std::vector<int32_t>& first_tokens, int64_t vocab = kVocab) {
    StepInput input;
    std::vector<std::vector<int32_t>> blocks;
    std::vector<int64_t> widths;
    for (size_t i = 0; i < adapters.size(); ++i) {
      const auto begin = static_cast<int32_t>(input.tokens.size());
      for (int32_t t = 0; t < kPrompt; ++t) input.tokens.push_back(first_tokens[i] - t);
      blocks.push_back({});
      for (int32_t b = 0; b < 3; ++b) blocks.back().push_back(static_cast<int32_t>(i) * 3 + b);
      input.sequences.push_back({begin, kPrompt, 0, {}});
      for (const int32_t row : {2, 7, kPrompt - 1}) input.logits_rows.push_back(begin + row);
      const bool own = adapters[i] != nullptr;
      const int64_t width = own ? std::max(vocab, adapters[i]->vocab_size) : vocab;
      widths.insert(widths.end(), 3, width);
      if (!own) continue;
      const auto same = std::find_if(input.adapters.begin(), input.adapters.end(),
                                     [&](const AdapterRows& rows) { return rows.adapter == adapters[i]->id; });
      const RowRange range{begin, begin + kPrompt};
      if (same != input.adapters.end()) {
        same->ranges.push_back(range);
      } else {
        input.adapters.push_back({adapters[i]->id, adapters[i]->vocab_size, {range}});
      }
    }
    for (size_t i = 0; i < blocks.size(); ++i) input.sequences[i].block_tables = blocks[i];
    const auto logits = ranks.run(input);
    const size_t stride = logits.size() / widths.size();
    EXPECT_EQ(stride, static_cast<size_t>(logitsWidth(input, vocab)));
    std::vector<std::vector<float>> rows;
    for (size_t r = 0; r < widths.size(); ++r) {
      const auto row = logits.subspan(r * stride, static_cast<size_t>(widths[r]));
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }
};

TEST_P(AdapterAsModelTest, AnAdapterThatReplacesEveryWeightGivesTheLogitsOfThatModelInAnyBatch) {
  for (const std::string backend : {"cpu", "guarded", "reference"}) {
    for (const int64_t added : {0, 5}) {
      RankGroup base = makeGroup(kVocab, 1, backend);
      RankGroup other = makeGroup(kVocab + added, 2, backend);
      const PreparedAdapter adapter = adapterOf(base, other);
      const auto last = static_cast<int32_t>(kVocab + added) - 1;  // an added token is in the prompt
      const auto base_rows = step(base, {nullptr, nullptr}, {20, 33});
      const auto other_rows = step(other, {nullptr, nullptr}, {last, 17}, kVocab + added);
      const auto mixed = step(base, {nullptr, &adapter, nullptr, &adapter}, {20, last, 33, 17});
      for (size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(mixed[r], base_rows[r]) << backend << " added " << added;
        EXPECT_EQ(mixed[3 + r], other_rows[r]) << backend << " added " << added;
        EXPECT_EQ(mixed[6 + r], base_rows[3 + r]) << backend << " added " << added;
        EXPECT_EQ(mixed[9 + r], other_rows[3 + r]) << backend << " added " << added;
      }
      EXPECT_EQ(mixed[3].size(), static_cast<size_t>(kVocab + added));
      EXPECT_NE(base_rows, other_rows);
    }
  }
}

// The rows of the head are the rows that need logits, wherever they are in the step.
TEST_P(AdapterAsModelTest, PartsOfTheHeadMeetTheirRowsOfLogits) {
  RankGroup ranks = makeGroup(kVocab, 1, "guarded");
  const Mapping& mapping = ranks.engine().config().mapping;
  const int64_t share = vocabularyShare(ranks.engine().config());
  std::vector<float> bias(kVocab);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) - 20.0f;
  const PreparedAdapter adapter{.id = AdapterId{77}};
  for (int32_t rank = 0; rank < ranks.size(); ++rank) {
    auto parts = std::make_shared<AdapterParts>(ranks.session(rank).engine().layers().count());
    if (mapping.ppRank(rank) + 1 == mapping.pp_size) {
      const int64_t first = mapping.tpRank(rank) * share;
      LoraTerm part;
      part.b.out = std::min(share, kVocab - first);
      part.bias = Uploads{ranks.session(rank).backend(), *parts}.vector(bias.data() + first, part.b.out);
      parts->add(kOutsideLayers, LinearId::kHead, part);
    }
    ranks.session(rank).adapters().add(adapter.id, parts);
  }
  const auto plain = step(ranks, {nullptr, nullptr, nullptr}, {20, 33, 44});
  const auto adapted = step(ranks, {&adapter, nullptr, &adapter}, {20, 33, 44});
  for (size_t r = 0; r < 9; ++r) {
    std::vector<float> expected = plain[r];
    for (size_t i = 0; i < kVocab && r / 3 != 1; ++i) expected[i] += bias[i];
    EXPECT_EQ(adapted[r], expected) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AdapterAsModelTest,
                         ::testing::Values(Layout{}, Layout{2, 1}, Layout{1, 2}, Layout{2, 3}, Layout{2, 1, 0},
                                           Layout{2, 2, 1}),
                         [](const auto& info) {
                           return fmt::format("tp{}pp{}{}", info.param.tp_size, info.param.pp_size,
                                              info.param.embedding < 0    ? ""
                                              : info.param.embedding == 0 ? "rows"
                                                                          : "columns");
                         });

}  // namespace
}  // namespace chorus
