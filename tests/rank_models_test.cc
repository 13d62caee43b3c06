// Random small models with random adapters, sharded over ranks in every possible way: KV heads repeated if there are
// fewer than ranks, a vocabulary that does not divide, tied and sharded embeddings. Answers are those of one rank
// within the tolerance, and rows of a mixed batch have the bits of their solo runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "engine/rank_group.h"
#include "executor_runs.h"
#include "golden_tolerance.h"
#include "kernels/default_isa.h"
#include "kernels/linear/linear.h"
#include "random_llama.h"
#include "teacher_forced.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

constexpr uint64_t kFirstSeed = 77100;
constexpr int kModels = 8;
constexpr int kAdapters = 3;  // the first two are LoRA, the last is DoRA

struct Case {
  RandomLlama model;
  std::filesystem::path dir;
  std::vector<std::filesystem::path> adapters;
  std::vector<int32_t> tokens;
};

Case makeCase(uint64_t seed, const std::filesystem::path& root) {
  std::mt19937_64 rng(seed);
  Case c{.model = randomLlamaShape(rng), .dir = root / std::to_string(seed)};
  if (seed % 2 == 0) c.model.kv_heads = 1 + static_cast<int64_t>(seed / 2 % 2);  // fewer KV heads than ranks
  fillWeights(c.model, rng);
  writeModel(c.model, c.dir);
  for (int i = 0; i < kAdapters; ++i) {
    c.adapters.push_back(c.dir / ("adapter" + std::to_string(i)));
    writeRandomAdapter(c.model, i == kAdapters - 1, rng, c.adapters.back());
  }
  for (int i = 0; i < 45; ++i) c.tokens.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(c.model.vocab)));
  return c;
}

// Logits of the base, then of every adapter.
std::vector<std::vector<float>> logitsOf(const Case& c, DType dtype, const Cut& cut) {
  RankGroup ranks(RankGroup::loadEngines(testEngine(c.dir, dtype, testBuildConfig(), cut)), {.threads = 2},
                  kTeacherForcedOptions);
  std::vector<std::vector<float>> logits = {teacherForced(ranks, c.tokens, 0, nullptr)};
  for (const auto& dir : c.adapters) {
    const Adapter adapter = readTestAdapter(dir, ranks.engine());
    const auto prepared = ranks.prepareAdapter(adapter);
    EXPECT_EQ(ranks.preparedBytes(adapter), static_cast<int64_t>(prepared->bytes));
    logits.push_back(teacherForced(ranks, c.tokens, 0, prepared.get()));
  }
  return logits;
}

TEST(RankModels, AnswerAsOneRankDoes) {
  const TempDir root;
  const Cut cuts[] = {{.tp_size = 2},
                      {.tp_size = 4},
                      {.tp_size = 2, .use_parallel_embedding = true, .embedding_sharding_dim = 0},
                      {.tp_size = 4, .use_parallel_embedding = true, .embedding_sharding_dim = 1},
                      {.tp_size = 2, .pp_size = 3},
                      {.tp_size = 4, .pp_size = 2, .use_parallel_embedding = true, .embedding_sharding_dim = 0},
                      {.tp_size = 2, .pp_size = 2, .use_parallel_embedding = true, .embedding_sharding_dim = 1}};
  int repeated_heads = 0;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kModels; ++seed) {
    const Case c = makeCase(seed, root.path());
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.model.describe());
    const DType dtype = std::array{DType::kFloat32, DType::kBFloat16, DType::kFloat16}[seed % 3];
    const auto one = logitsOf(c, dtype, {});
    const ModelConfig config = Engine::load(testEngine(c.dir, dtype))->config();
    std::map<int32_t, std::vector<std::vector<float>>> by_tp;
    double worst = 0;
    for (const Cut& cut : cuts) {
      SCOPED_TRACE(cut.name());
      repeated_heads += c.model.kv_heads < cut.tp_size;
      const auto logits = logitsOf(c, dtype, cut);
      for (size_t i = 0; i < one.size(); ++i) {
        const double tolerance = goldenTolerance(dtype, linearInputType(defaultIsa(), dtype), config,
                                                 std::ssize(c.tokens), largestOf(one[i]));
        const double error = largestDifference(logits[i], one[i]);
        EXPECT_LE(error, tolerance) << (i == 0 ? "base" : c.adapters[i - 1].filename().string());
        worst = std::max(worst, error / tolerance);
        if (i > 0) {
          EXPECT_GT(largestDifference(logits[i], logits[0]), tolerance) << "the adapter does something";
        }
      }
      // Neither the embedding's layout nor the bounds of the stages change a bit.
      const auto [known, is_new] = by_tp.emplace(cut.tp_size, logits);
      if (!is_new) {
        EXPECT_EQ(logits, known->second);
      }
    }
    std::printf("seed %llu: largest difference %.2f of the tolerance\n", static_cast<unsigned long long>(seed), worst);
  }
  EXPECT_GT(repeated_heads, 0);
}

TEST(RankModels, RowsOfAMixedBatchHaveTheBitsOfTheirSoloRuns) {
  const TempDir root;
  for (const uint64_t seed : {kFirstSeed + 100, kFirstSeed + 101}) {
    const Case c = makeCase(seed, root.path());
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.model.describe());
    const auto engine = testEngine(c.dir, DType::kBFloat16, testBuildConfig(), {.tp_size = 2, .pp_size = 2});
    std::mt19937_64 rng(seed);
    std::vector<executor::Request> requests;
    for (size_t i = 0; i < 12; ++i) {
      std::vector<int32_t> prompt(c.tokens.begin(), c.tokens.begin() + 1 + static_cast<int64_t>(rng() % 40));
      const size_t adapter = i % (kAdapters + 1);
      requests.push_back(greedyRequest(prompt, 3 + static_cast<int32_t>(rng() % 9),
                                       adapter == 0 ? std::nullopt : std::optional<size_t>(adapter - 1)));
    }
    const auto executor = openExecutor(engine, executor::ExecutorConfig(), c.adapters);
    const auto alone = runAlone(*executor, requests);
    executor->getLatestIterationStats();
    const auto mixed = runTogether(*executor, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(mixed[i].tokens, alone[i].tokens);
      EXPECT_EQ(mixed[i].logits_hash, alone[i].logits_hash) << "row " << i;
    }
    const auto steps = executor->getLatestIterationStats();
    EXPECT_TRUE(
        std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.numAdapters == kAdapters; }));
  }
}

}  // namespace
}  // namespace chorus::test
