// Memory: the plan equals what is allocated, and nothing grows once every kind of request was served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "convert/convert_model.h"
#include "engine/build.h"
#include "engine/rank_group.h"
#include "executor_runs.h"
#include "golden_case.h"
#include "runtime/memory_plan.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

// A step over one sequence from its start, with the logits of the rows from `first` on.
struct OneSequence {
  std::vector<int32_t> blocks = std::vector<int32_t>(16);
  StepInput step;

  OneSequence(const std::vector<int32_t>& tokens, int32_t first) {
    std::iota(blocks.begin(), blocks.end(), 0);
    const auto count = static_cast<int32_t>(tokens.size());
    step.tokens = tokens;
    step.sequences.push_back({.row_begin = 0, .num_rows = count, .first_position = 0, .block_tables = blocks});
    for (int32_t row = first; row < count; ++row) step.logits_rows.push_back(row);
  }
};

class Memory : public testing::Test {
 protected:
  std::filesystem::path engineWithRanks(int32_t tp_size, int32_t pp_size) {
    const auto checkpoint = dir_.path() / "checkpoint", engine = dir_.path() / "engine";
    convertModel(plain_.directory, checkpoint,
                 {.dtype = DType::kFloat32, .tp_size = tp_size, .pp_size = pp_size, .workers = 1});
    buildEngine(checkpoint, engine, testBuildConfig(), 1);
    return engine;
  }

  const GoldenCase plain_ = loadGolden("plain", DType::kFloat32);
  const TempDir dir_;
};

TEST_F(Memory, PlannedMemoryIsAllocatedOnEveryRank) {
  for (const auto& [tp_size, pp_size] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
    SCOPED_TRACE(fmt::format("tp {} pp {}", tp_size, pp_size));
    const auto engines = RankGroup::loadEngines(engineWithRanks(tp_size, pp_size));
    const SessionOptions options = {
        .max_batch_size = 3, .max_num_tokens = 160, .tokens_per_block = 16, .kv_blocks = 20};
    const MemoryPlan plan = planMemory(engines, options, {.cache = 1000}, int64_t{1} << 40);
    RankGroup ranks(engines, {.threads = 1}, options);
    for (int32_t rank = 0; rank < ranks.size(); ++rank) {
      const SessionMemory& planned = plan.ranks[static_cast<size_t>(rank)];
      EXPECT_EQ(static_cast<int64_t>(ranks.session(rank).backend().allocatedBytes()),
                planned.kv_cache + planned.activations);
    }
    const Engine& engine = *engines.front();
    EXPECT_EQ(plan.kvCache(), 20 * Session::kvCache(engine.config(), engine.buildConfig(), options).block_bytes);
    EXPECT_EQ(plan.kv_tokens, 320);
  }
}

TEST_F(Memory, ContextLogitsGoThroughTheRoomOfAStep) {
  const auto engine = Engine::load(testEngine(plain_.directory, DType::kFloat32));
  const std::vector<int32_t>& prompt =
      std::max_element(plain_.rows.begin(), plain_.rows.end(), [](const auto& a, const auto& b) {
        return a.prompt.size() < b.prompt.size();
      })->prompt;
  OneSequence all(prompt, 0), last(prompt, static_cast<int32_t>(prompt.size()) - 1);
  std::vector<std::vector<float>> logits;
  for (const int32_t room : {1, 7, 256}) {
    RankGroup ranks({engine}, {.threads = 1}, {.max_batch_size = room, .tokens_per_block = 16, .kv_blocks = 16});
    const size_t before = ranks.session(0).backend().allocatedBytes();
    const auto result = ranks.run(all.step);
    logits.emplace_back(result.begin(), result.end());
    EXPECT_EQ(logits.back().size(), prompt.size() * 211);
    const auto one = ranks.run(last.step);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), logits.back().end() - 211, logits.back().end()));
    EXPECT_EQ(ranks.session(0).backend().allocatedBytes(), before);
  }
  EXPECT_EQ(logits[0], logits[2]);
  EXPECT_EQ(logits[1], logits[2]);
}

size_t heapInUse() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Prompts of any length with any adapter, with and without context logits.
std::vector<executor::Request> randomRequests(const GoldenCase& golden, uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<executor::Request> requests;
  for (size_t i = 0; i < count; ++i) {
    const size_t length = i == 0 ? 200 : 1 + random() % 200;
    std::vector<int32_t> prompt(length);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 211);
    const size_t adapter = i % (golden.adapters.size() + 1);
    executor::OutputConfig output;
    output.returnContextLogits = i % 3 == 0;
    output.returnLogProbs = i % 2 == 0;
    executor::SamplingConfig sampling;
    sampling.setTopK(i % 2 == 0 ? 1 : 20);
    executor::Request request(prompt, static_cast<int32_t>(1 + random() % 40), false, sampling, output);
    if (adapter > 0) request.setLoraConfig(executor::LoraConfig(adapter));
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_F(Memory, MemoryStopsGrowingOnceEveryKindOfRequestRan) {
  const auto engine_dir = testEngine(plain_.directory, DType::kFloat32);
  executor::ExecutorConfig config;
  config.setNumThreads(2);
  config.setIterStatsMaxIterations(10);
  const auto executor = openExecutor(engine_dir, config, adapterDirectories(plain_));
  uint64_t seed = 0;
  // The least memory after one of the last rounds: threads may still hold some of a round when it has been answered.
  const auto serve = [&](int rounds) {
    size_t least = std::numeric_limits<size_t>::max();
    for (int round = 0; round < rounds; ++round) {
      runTogether(*executor, randomRequests(plain_, seed++, 40));
      if (round >= rounds - 10) least = std::min(least, heapInUse());
    }
    return least;
  };
  const size_t warm = serve(40);
  const size_t later = serve(40);
  // After 1,600 requests, a leak of 10 bytes per request would show.
  EXPECT_LE(later, warm + 16 * 1024);
  executor->shutdown();
}

TEST_F(Memory, TheExecutorReportsTheMemoryThatItTook) {
  const auto engine_dir = testEngine(plain_.directory, DType::kFloat32);
  executor::ExecutorConfig config;
  config.getKvCacheConfigRef().setMaxTokens(2048);
  executor::PeftCacheConfig adapters;
  adapters.setHostCacheSize(3 << 20);
  config.setPeftCacheConfig(adapters);
  const auto executor = openExecutor(engine_dir, config, {});
  const executor::MemoryUse use = executor->getMemoryUse();
  EXPECT_EQ(use.kvCacheTokens, 2048);
  const auto engine = Engine::load(engine_dir);
  EXPECT_EQ(use.kvCache, 2048 / 64 * Session::kvCache(engine->config(), engine->buildConfig()).block_bytes);
  EXPECT_EQ(use.adapterCache, 3 << 20);
  EXPECT_EQ(static_cast<uintmax_t>(use.weights), std::filesystem::file_size(engine_dir / "rank0.engine"));
  for (const char* part : {"weights", "KV cache", "2048 tokens", "activations", "adapters", "total", "available"}) {
    EXPECT_THAT(use.table, testing::HasSubstr(part));
  }
}

TEST_F(Memory, TooLittleIsRefusedWithTheNumbers) {
  const auto engines = RankGroup::loadEngines(testEngine(plain_.directory, DType::kFloat32));
  MemoryPlan plan = planMemory(engines, {.kv_blocks = 1000}, {}, int64_t{56} << 20);
  try {
    plan.check();
    FAIL() << plan.table();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kExhausted);
    for (const char* part : {"KV cache 54.7", "56.0 MiB of memory are available"}) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  }
  plan.available = int64_t{1} << 40;
  EXPECT_NO_THROW(plan.check());
}

}  // namespace
}  // namespace chorus::test
