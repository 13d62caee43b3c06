#include "engine/rank_group.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "base/testing/error_of.h"
#include "engine/adapter_values.h"
#include "engine/testing/random_engine.h"
#include "lora/adapter.h"
#include "lora/module_ids.h"

namespace chorus {
namespace {

// An engine with random weights on several ranks, and a random adapter for it.
class RankGroupTest : public RandomEngineTest {
 protected:
  RankGroup makeGroup(int32_t tp_size, int32_t pp_size, int threads, int32_t sequences = 8,
                      std::optional<WeightFormat> lora_format = std::nullopt) {
    BuildConfig build = smallBuild();
    build.dora_plugin = true;
    build.max_batch_size = sequences;
    build.max_num_tokens = 64 * sequences;
    const ModelConfig config = randomModel({.tp_size = tp_size, .pp_size = pp_size});
    return RankGroup(RankGroup::loadEngines(makeEngine(config, build, 4711)), {.threads = threads},
                     {.kv_blocks = 8 * sequences, .lora_format = lora_format});
  }

  // LoRA on the query projection and DoRA with magnitudes that are not normalised on the row-parallel linears, in every
  // layer.
  static Adapter adapter() {
    std::mt19937_64 rng(815);
    Adapter adapter{.name = "random", .max_rank = 4, .uses_dora = true, .content_hash = "hash"};
    const auto add = [&](int32_t layer, int32_t id, const char* name, int64_t out, int64_t in, bool dora) {
      AdapterModule module{.module_id = id, .module_name = name, .layer = layer, .rank = 4, .in = in, .out = out};
      const auto store = [&](int64_t count) {
        const auto held = std::make_shared<const std::vector<std::byte>>(randomValues(count, DType::kFloat32, rng));
        adapter.storage.push_back(held);
        return held->data();
      };
      module.a = store(4 * in);
      module.b = store(out * 4);
      if (dora) module.magnitude.assign(static_cast<size_t>(out), 1.5f);
      adapter.modules.push_back(std::move(module));
    };
    for (int32_t layer = 0; layer < 3; ++layer) {
      add(layer, kAttnQ, "self_attn.q_proj", 24, 24, false);
      add(layer, kAttnDense, "self_attn.o_proj", 24, 24, true);
      add(layer, kMlp4HToH, "mlp.down_proj", 24, 40, true);
    }
    return adapter;
  }

  // Runs a step of one sequence and returns the logits of two of its tokens.
  static std::vector<float> step(RankGroup& ranks, const PreparedAdapter* adapter) {
    std::vector<int32_t> blocks(8);
    StepInput input = firstStep(30, blocks);
    input.logits_rows = {3, 29};
    if (adapter != nullptr) input.adapters.push_back({adapter->id, adapter->vocab_size, {{0, 30}}});
    const auto logits = ranks.run(input);
    EXPECT_EQ(logits.size(), 2u * 45u);
    return {logits.begin(), logits.end()};
  }
};

TEST_F(RankGroupTest, AdaptersAreMadeWhileStepsRun) {
  RankGroup ranks = makeGroup(2, 2, 4);
  EXPECT_EQ(ranks.size(), 4);
  const auto base = step(ranks, nullptr);
  const auto prepared = ranks.prepareAdapter(adapter());
  EXPECT_EQ(prepared->content_hash, "hash");
  EXPECT_EQ(static_cast<int64_t>(prepared->bytes), ranks.preparedBytes(adapter()));
  const auto adapted = step(ranks, prepared.get());
  EXPECT_NE(adapted, base);

  std::atomic<bool> stop{false};
  std::thread loader([&] {
    while (!stop) EXPECT_EQ(ranks.prepareAdapter(adapter())->bytes, prepared->bytes);
  });
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(step(ranks, i % 2 == 0 ? prepared.get() : nullptr), i % 2 == 0 ? adapted : base);
  stop = true;
  loader.join();
}

TEST_F(RankGroupTest, StagesHoldTheirLayersAndRanksTheirShare) {
  RankGroup ranks = makeGroup(2, 2, 1);
  const auto prepared = ranks.prepareAdapter(adapter());
  ASSERT_EQ(ranks.size(), 4);
  const auto parts = [&](int32_t rank, int32_t layer, LinearId linear) {
    return ranks.session(rank).adapters().at(prepared->id)->at(layer, linear).parts;
  };
  for (int32_t rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(parts(rank, 0, LinearId::kQkv).size(), 1u);
    EXPECT_EQ(parts(rank, 0, LinearId::kQkv)[0].b.out, 12);  // column-parallel: B
    EXPECT_EQ(parts(rank, 0, LinearId::kQkv)[0].a.in, 24);
    EXPECT_EQ(parts(rank, 0, LinearId::kProj)[0].b.out, 24);  // row-parallel: A
    EXPECT_EQ(parts(rank, 0, LinearId::kProj)[0].a.in, 20);
    EXPECT_TRUE(parts(rank, 0, LinearId::kFc).empty());
    // Both ranks share these rows and have the same factors.
    for (int64_t o = 0; o < 24; ++o) {
      EXPECT_EQ(parts(rank, 0, LinearId::kProj)[0].magnitude[o], parts(rank ^ 1, 0, LinearId::kProj)[0].magnitude[o]);
    }
  }
  EXPECT_EQ(parts(0, 1, LinearId::kQkv).size(), 1u);             // layers 0 and 1
  EXPECT_THROW(parts(2, 1, LinearId::kQkv), std::out_of_range);  // layer 2
}

// The norm of a whole row is computed from the weights of both ranks.
TEST_F(RankGroupTest, RowNormsSpanTheRanks) {
  RankGroup ranks = makeGroup(2, 1, 1);
  const Adapter whole = adapter();
  const auto prepared = ranks.prepareAdapter(whole);
  const AdapterModule& module =
      *std::find_if(whole.modules.begin(), whole.modules.end(), [](const auto& m) { return m.module_id == kMlp4HToH; });
  const auto value = [](const std::byte* data, int64_t i) {
    float rounded = 0;
    std::byte bits[2];
    convertElements(data + i * 4, DType::kFloat32, bits, DType::kBFloat16, 1);
    convertElements(bits, DType::kBFloat16, &rounded, DType::kFloat32, 1);
    return rounded;
  };
  std::vector<float> row(20);
  for (int64_t o = 0; o < 24; ++o) {
    double squares = 0;
    for (int32_t rank = 0; rank < 2; ++rank) {
      const Engine& engine = ranks.session(rank).engine();
      engine.packer().unpackRow(engine.linear("transformer.layers.0.mlp.proj", 24, 20), o, row.data());
      for (int64_t i = 0; i < 20; ++i) {
        double sum = row[static_cast<size_t>(i)];
        for (int64_t r = 0; r < 4; ++r) sum += value(module.b, o * 4 + r) * value(module.a, r * 40 + rank * 20 + i);
        squares += sum * sum;
      }
    }
    const float factor = ranks.session(0).adapters().at(prepared->id)->at(0, LinearId::kProj).parts[0].magnitude[o];
    EXPECT_NEAR(factor, 1.5 / std::sqrt(squares), 1e-5);
  }
}

// An embedding or output head in the adapter that equals the base's takes no memory. If its last value differs, it is
// kept and changes the logits.
TEST_F(RankGroupTest, CopiesOfTheBaseAreNotKept) {
  RankGroup ranks = makeGroup(1, 1, 1);
  const Engine& engine = ranks.session(0).engine();
  const PackedWeight packed = engine.linear("lm_head", 45, 24);
  std::vector<float> head(45 * 24), table(45 * 24);
  for (int64_t row = 0; row < 45; ++row) engine.packer().unpackRow(packed, row, head.data() + row * 24);
  convertElements(engine.table("transformer.vocab_embedding", 45, 24).data, DType::kBFloat16, table.data(),
                  DType::kFloat32, table.size());
  const auto with = [](const WeightSlot& slot, const std::vector<float>& values) {
    Adapter adapter{.name = "saved", .content_hash = "hash"};
    adapter.weights.push_back({.slot = slot, .rows = 45, .cols = 24});
    adapter.weights[0].data = reinterpret_cast<const std::byte*>(values.data());
    return adapter;
  };
  const auto base = step(ranks, nullptr);
  for (auto& [slot, values] :
       {std::pair(slotOf(LinearId::kHead), &head), std::pair(slotOf(TableId::kTokens), &table)}) {
    const bool is_head = slot == slotOf(LinearId::kHead);
    SCOPED_TRACE(is_head ? "head" : "embedding");
    const Adapter copy = with(slot, *values);
    EXPECT_EQ(ranks.preparedBytes(copy), 0);
    const auto nothing = ranks.prepareAdapter(copy);
    EXPECT_EQ(nothing->bytes, 0u);
    EXPECT_EQ(step(ranks, nothing.get()), base);
    // Token 36 is the last token of the step.
    (*values)[is_head ? 45 * 24 - 1 : 36 * 24 + 23] += 1;
    const Adapter changed = with(slot, *values);
    EXPECT_GE(ranks.preparedBytes(changed), 45 * 24 * 2);
    EXPECT_NE(step(ranks, ranks.prepareAdapter(changed).get()), base);
  }
}

TEST_F(RankGroupTest, AShareBeyondTheLimitIsNotPacked) {
  const auto engine = makeEngine(randomModel({.tp_size = 2}), smallBuild(), 3);
  Adapter plain = adapter();
  plain.uses_dora = false;
  for (AdapterModule& module : plain.modules) module.magnitude.clear();
  const auto group = [&](int64_t limit) {
    return RankGroup(RankGroup::loadEngines(engine), {.threads = 1}, {.kv_blocks = 64, .max_adapter_bytes = limit});
  };
  const RankGroup unlimited = group(std::numeric_limits<int64_t>::max());
  const int64_t each = unlimited.preparedBytes(plain) / 2;
  EXPECT_EQ(errorOf([&] { group(each).prepareAdapter(plain); }), "");
  EXPECT_THAT(errorOf([&] { group(each - 1).prepareAdapter(plain); }),
              testing::HasSubstr(fmt::format("adapter 'random' takes {} bytes, more than the {} of", each, each - 1)));
}

TEST_F(RankGroupTest, AddedTokensAreAsManyAsPlannedAndAllTaken) {
  const ModelConfig config = randomModel({});
  BuildConfig build = smallBuild();
  build.max_batch_size = 4;
  const RankGroup ranks(RankGroup::loadEngines(makeEngine(config, build, 1)), {.threads = 1},
                        {.kv_blocks = 16, .max_added_tokens = 5});
  const std::vector<float> values(60 * 24, 0.5f);
  const auto refusalOf = [&](int64_t vocab, int64_t input, bool measured = false) {
    Adapter adapter{.name = "grown", .vocab_size = vocab, .input_vocab_size = input, .content_hash = "hash"};
    const auto add = [&](const WeightSlot& slot, int64_t rows) {
      AdapterWeight weight{.slot = slot, .rows = rows, .cols = 24};
      weight.data = reinterpret_cast<const std::byte*>(values.data());
      if (rows > 0) adapter.weights.push_back(weight);
    };
    add(slotOf(LinearId::kHead), vocab);
    add(slotOf(TableId::kTokens), input);
    return errorOf([&] {
      measured ? static_cast<void>(ranks.preparedBytes(adapter)) : static_cast<void>(ranks.prepareAdapter(adapter));
    });
  };
  EXPECT_EQ(refusalOf(50, 50), "");
  EXPECT_EQ(refusalOf(0, 50), "") << "takes more than it answers";
  for (const auto& [vocab, input] : {std::pair(51, 51), std::pair(48, 47), std::pair(46, 0)}) {
    EXPECT_NE(refusalOf(vocab, input).find("at most 50, all of which they take"), std::string::npos) << vocab;
    EXPECT_NE(refusalOf(vocab, input, true).find("at most 50"), std::string::npos) << "already when it is measured";
  }
}

// Refused already when the adapter is measured: an infinite value would reach the rows of other requests.
TEST_F(RankGroupTest, ValuesBeyondTheEnginesTypeAreRefused) {
  const RankGroup ranks = makeGroup(2, 1, 1), of_eight_bits = makeGroup(1, 1, 1, 8, int8LoraFormat());
  std::vector<float> values(45 * 24, 3.3e38F);
  const auto expectRefused = [&](const RankGroup& group, const std::string& what, const auto& change) {
    for (const bool is_beyond : {true, false}) {
      values[23] = is_beyond ? 3.4e38F : 3.3e38F;
      Adapter changed = adapter();
      change(changed);
      const std::string refusal =
          is_beyond && !what.empty()
              ? "adapter 'random': " + what + " holds values beyond the range of bfloat16, the model's type"
              : "";
      EXPECT_EQ(errorOf([&] { group.prepareAdapter(changed); }), refusal);
      EXPECT_EQ(errorOf([&] { group.preparedBytes(changed); }), refusal);
      changed.only_shapes = true;
      EXPECT_EQ(errorOf([&] { group.preparedBytes(changed); }), "") << "without values";
    }
  };
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  const auto changeA = [&](Adapter& changed) { changed.modules[0].a = bytes; };
  const auto changeB = [&](Adapter& changed) { changed.modules[3].b = bytes; };
  expectRefused(ranks, "self_attn.q_proj of layer 0", changeA);
  expectRefused(ranks, "self_attn.q_proj of layer 1", changeB);
  expectRefused(of_eight_bits, "", changeA);
  const auto expectWeightRefused = [&](const std::string& what, const WeightSlot& slot, int32_t layer, int64_t rows,
                                       int64_t cols) {
    expectRefused(ranks, what, [&](Adapter& changed) {
      changed.weights.push_back({.slot = slot, .layer = layer, .rows = rows, .cols = cols, .data = bytes});
    });
  };
  expectWeightRefused("transformer.vocab_embedding.weight", slotOf(TableId::kTokens), kOutsideLayers, 45, 24);
  expectWeightRefused("transformer.layers.1.attention.dense.weight", slotOf(LinearId::kDense), 1, 24, 24);
  expectWeightRefused("", slotOf(NormId::kAttentionIn), 1, 24, 1);
  expectRefused(ranks, "a token's row of the embedding",
                [&](Adapter& changed) { changed.embedding_tokens = {{1}, 24, {values.begin(), values.begin() + 24}}; });
  expectRefused(ranks, "a token's row of the output head",
                [&](Adapter& changed) { changed.head_tokens = {{1}, 24, {values.begin(), values.begin() + 24}}; });
}

// A and B of 8 bits: the adapter acts like one whose A and B have the rounded values, whose DoRA norms too are those of
// the rounded values, and takes less memory.
TEST_F(RankGroupTest, AdaptersOfEightBitsActLikeTheirRoundedValues) {
  Adapter rounded = adapter();
  float farthest = 0;
  for (AdapterModule& module : rounded.modules) {
    const auto round = [&](const std::byte*& values, int64_t rows, int64_t in) {
      const auto held = std::make_shared<const std::vector<float>>(
          termValues(values, DType::kFloat32, int8LoraFormat(), rows, in, nullptr));
      rounded.storage.push_back(held);
      const auto* exact = reinterpret_cast<const float*>(values);
      for (size_t i = 0; i < held->size(); ++i) farthest = std::max(farthest, std::abs((*held)[i] - exact[i]));
      values = reinterpret_cast<const std::byte*>(held->data());
    };
    round(module.a, module.rank, module.in);
    round(module.b, module.out, module.rank);
  }
  EXPECT_GT(farthest, 1e-4f);
  EXPECT_LE(farthest, 0.5f / 127 / 3 + 1e-6f);  // half a step of rows whose largest value is 1/3

  const ModelConfig config = [] {
    ModelConfig of_float = randomModel({});
    of_float.dtype = DType::kFloat32;
    return of_float;
  }();
  BuildConfig build = smallBuild();
  build.dora_plugin = true;
  const auto engine = makeEngine(config, build, 4711);
  const auto group = [&](std::optional<WeightFormat> format) {
    return RankGroup(RankGroup::loadEngines(engine), {.threads = 1}, {.kv_blocks = 64, .lora_format = format});
  };
  RankGroup whole = group(std::nullopt), eight = group(int8LoraFormat());
  const auto of_whole = whole.prepareAdapter(rounded), of_eight = eight.prepareAdapter(adapter());
  EXPECT_LT(of_eight->bytes, of_whole->bytes / 2);
  EXPECT_EQ(of_eight->elements, of_whole->elements);
  const auto expected = step(whole, of_whole.get()), found = step(eight, of_eight.get());
  const auto exact = step(whole, whole.prepareAdapter(adapter()).get());
  float error = 0, effect = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error = std::max(error, std::abs(found[i] - expected[i]));
    effect = std::max(effect, std::abs(exact[i] - expected[i]));
  }
  EXPECT_LT(error, effect / 20);
  EXPECT_LT(error, 1e-4f);
}

// Trained rows are rounded to the engine's type, like the base's rows.
TEST_F(RankGroupTest, TrainedRowsAreRoundedToTheEnginesType) {
  RankGroup ranks = makeGroup(1, 1, 1);
  const auto base = step(ranks, nullptr);
  for (auto tokens : {&Adapter::embedding_tokens, &Adapter::head_tokens}) {
    Adapter exact{.name = "tokens", .content_hash = "hash"};
    exact.*tokens = {.tokens = {8, 30, 31}, .cols = 24, .rows = std::vector<float>(3 * 24)};
    for (size_t i = 0; i < 72; ++i) (exact.*tokens).rows[i] = 1.0f / static_cast<float>(i + 3);
    Adapter rounded = exact;
    for (float& value : (rounded.*tokens).rows) {
      bf16 bits;
      convertElements(&value, DType::kFloat32, &bits, DType::kBFloat16, 1);
      convertElements(&bits, DType::kBFloat16, &value, DType::kFloat32, 1);
    }
    EXPECT_NE((rounded.*tokens).rows, (exact.*tokens).rows);
    const auto answer = step(ranks, ranks.prepareAdapter(exact).get());
    EXPECT_EQ(answer, step(ranks, ranks.prepareAdapter(rounded).get()));
    EXPECT_NE(answer, base);
  }
}

// A long run of trained tokens of the head is cut, because its identity matrix grows with the square of its length. The
// cuts change no logit.
TEST_F(RankGroupTest, LongRunsOfTrainedTokensAreCut) {
  constexpr int64_t kVocab = 20'000, kHidden = 24;
  const auto tokensFrom = [](int32_t first, int32_t count, int32_t by) {
    AdapterTokens tokens{.cols = kHidden};
    for (int32_t token = first; token < first + count; token += by) tokens.tokens.push_back(token);
    for (const int32_t token : tokens.tokens) {
      for (int64_t i = 0; i < kHidden; ++i) {
        tokens.rows.push_back(static_cast<float>((token * 7 + static_cast<int32_t>(i) * 5) % 11 - 5) / 8);
      }
    }
    return tokens;
  };
  const auto adapterOf = [](AdapterTokens tokens) {
    Adapter adapter{.name = "tokens", .content_hash = "hash"};
    adapter.head_tokens = std::move(tokens);
    return adapter;
  };
  RankGroup ranks(RankGroup::loadEngines(makeEngine(randomModel({}, kVocab), smallBuild(), 5)), {.threads = 1},
                  {.kv_blocks = 64});
  const auto logitsWith = [&](const Adapter& adapter) {
    const auto prepared = ranks.prepareAdapter(adapter);
    EXPECT_EQ(static_cast<int64_t>(prepared->bytes), ranks.preparedBytes(adapter));
    std::vector<int32_t> blocks(8);
    StepInput input = firstStep(30, blocks);
    input.logits_rows = {29};
    input.adapters.push_back({prepared->id, 0, {{0, 30}}});
    const auto logits = ranks.run(input);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto run = logitsWith(adapterOf(tokensFrom(100, 600, 1)));
  const auto even = logitsWith(adapterOf(tokensFrom(100, 600, 2)));
  const auto odd = logitsWith(adapterOf(tokensFrom(101, 599, 2)));
  for (size_t token = 0; token < run.size(); ++token)
    EXPECT_EQ(run[token], (token % 2 == 0 ? even : odd)[token]) << token;
  EXPECT_NE(run, even);

  // Measuring needs no rows. For each token it counts a row, at most 256 values of an identity matrix and a factor.
  Adapter shapes = adapterOf(tokensFrom(0, kVocab, 1));
  shapes.only_shapes = true;
  shapes.head_tokens.rows.clear();
  shapes.embedding_tokens = shapes.head_tokens;
  EXPECT_LT(ranks.preparedBytes(shapes), kVocab * (kHidden * 6 + 256 * 2 + 16));
}

// The MLP computes a wide step in slices of rows. A row's bits are those of a step with only its own sequence.
TEST_F(RankGroupTest, WideStepsAreSlicedWithoutATrace) {
  constexpr int32_t kSequences = 80, kRows = 32;
  RankGroup ranks = makeGroup(2, 1, 2, kSequences);
  const auto prepared = ranks.prepareAdapter(adapter());
  std::vector<int32_t> blocks(8 * kSequences);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::mt19937_64 rng(99);
  StepInput wide;
  std::vector<StepInput> alone(kSequences);
  AdapterRows adapted{.adapter = prepared->id};
  for (int32_t i = 0; i < kSequences; ++i) {
    // With these lengths, slices begin and end inside sequences, both with and without an adapter.
    const int32_t rows = kRows - i % 3, first = static_cast<int32_t>(wide.tokens.size());
    const auto table = std::span<const int32_t>(blocks).subspan(static_cast<size_t>(8 * i), 8);
    StepInput& own = alone[static_cast<size_t>(i)];
    for (int32_t t = 0; t < rows; ++t) own.tokens.push_back(static_cast<int32_t>(rng() % 45));
    own.sequences.push_back({.num_rows = rows, .block_tables = table});
    own.logits_rows = {rows - 1};
    wide.tokens.insert(wide.tokens.end(), own.tokens.begin(), own.tokens.end());
    wide.sequences.push_back({.row_begin = first, .num_rows = rows, .block_tables = table});
    wide.logits_rows.push_back(first + rows - 1);
    if (i % 4 == 3) continue;
    own.adapters.push_back({.adapter = prepared->id, .ranges = {{0, rows}}});
    adapted.ranges.push_back({first, first + rows});
  }
  wide.adapters.push_back(adapted);
  ASSERT_GT(wide.tokens.size(), 2u * 1024u);
  const auto together = ranks.run(wide);
  const std::vector<float> logits(together.begin(), together.end());
  for (size_t i = 0; i < kSequences; ++i) {
    const auto own = ranks.run(alone[i]);
    ASSERT_EQ(std::vector<float>(own.begin(), own.end()),
              std::vector<float>(logits.begin() + static_cast<ptrdiff_t>(i * 45),
                                 logits.begin() + static_cast<ptrdiff_t>((i + 1) * 45)))
        << "sequence " << i;
  }
}

// The ranks know an adapter as long as a pointer to it exists, and the pointer may outlive the ranks.
TEST_F(RankGroupTest, RanksDropAdaptersThatAreNoLongerUsed) {
  std::shared_ptr<const PreparedAdapter> composed;
  {
    RankGroup ranks = makeGroup(2, 1, 1);
    auto first = ranks.prepareAdapter(adapter());
    const PreparedAdapter dropped{.id = first->id};
    const auto base = step(ranks, nullptr), adapted = step(ranks, first.get());
    composed = ranks.composeAdapters(std::vector<WeightedAdapter>{{first, 1.0f}});
    EXPECT_NE(composed->id, dropped.id);
    first.reset();
    for (int32_t rank = 0; rank < 2; ++rank) EXPECT_THROW(ranks.session(rank).adapters().at(dropped.id), Error);
    EXPECT_THROW(step(ranks, &dropped), Error);
    EXPECT_EQ(step(ranks, composed.get()), adapted);
    EXPECT_EQ(step(ranks, nullptr), base);
  }
  composed.reset();
}

// If a rank cannot prepare its share, no rank keeps one, and the next adapter can be prepared.
TEST_F(RankGroupTest, AFailedPreparationLeavesNoMemoryInUse) {
  RankGroup ranks = makeGroup(2, 2, 1);
  Adapter large = adapter();
  std::vector<float> values(40 * 4);
  values.back() = 3.4e38f;  // in the columns of the second rank of each stage
  for (AdapterModule& module : large.modules) {
    if (module.module_id == kMlp4HToH) module.a = reinterpret_cast<const std::byte*>(values.data());
  }
  EXPECT_NE(errorOf([&] { ranks.prepareAdapter(large); }), "");
  const auto next = ranks.prepareAdapter(adapter());
  const AdapterId failed{static_cast<uint64_t>(next->id) - 1};
  for (int32_t rank = 0; rank < 4; ++rank) EXPECT_THROW(ranks.session(rank).adapters().at(failed), Error);
  EXPECT_EQ(step(ranks, next.get()), step(ranks, next.get()));
}

// If one rank fails, the step fails, and the next step succeeds.
TEST_F(RankGroupTest, AFailingRankFreesTheOthers) {
  RankGroup ranks = makeGroup(2, 2, 1);
  const auto prepared = ranks.prepareAdapter(adapter());
  const auto expected = step(ranks, prepared.get());
  for (int32_t failing = 0; failing < 4; ++failing) {
    for (const int32_t layers : {0, 1}) {
      if (layers == 1 && failing >= 2) continue;  // the second stage has one layer
      SCOPED_TRACE("rank " + std::to_string(failing) + " with " + std::to_string(layers) + " layers");
      const auto broken = ranks.prepareAdapter(adapter());
      ranks.session(failing).adapters().add(broken->id, std::make_shared<AdapterParts>(layers));
      EXPECT_THROW(step(ranks, broken.get()), std::out_of_range);
      EXPECT_EQ(step(ranks, prepared.get()), expected);
    }
  }
}

}  // namespace
}  // namespace chorus
