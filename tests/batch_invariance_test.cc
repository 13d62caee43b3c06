// A request's logits are the same bits whatever shares the batch, whenever it arrives, however it is chunked or
// paused, and on any number of threads: one hash over 200 random schedules, bfloat16, best instruction set.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <set>
#include <thread>

#include "executor_runs.h"
#include "golden_case.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

constexpr int kSchedulesPerSetting = 50;
constexpr int kMaxMates = 16;
constexpr uint64_t kFirstSeed = 4201;

struct Setting {
  const char* name;
  int threads;
  bool tight;  // few rows a step and few blocks, so that mates chunk and pause the watched request
};
constexpr Setting kSettings[] = {
    {"1 thread", 1, false}, {"2 threads", 2, false}, {"1 thread, tight", 1, true}, {"2 threads, tight", 2, true}};

std::unique_ptr<executor::Executor> open(const GoldenCase& golden, const Setting& setting) {
  BuildConfig build = testBuildConfig();
  executor::ExecutorConfig config;
  config.numThreads = setting.threads;
  config.iterStatsMaxIterations = 1 << 20;
  if (setting.tight) {
    build.max_num_tokens = 40;
    build.tokens_per_block = 16;
    config.schedulerConfig.capacitySchedulerPolicy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
    config.kvCacheConfig.maxTokens = 400;
  }
  return openExecutor(testEngine(golden.directory, golden.dtype, build), config, adapterDirectories(golden));
}

executor::Request randomMate(const GoldenCase& golden, std::mt19937_64& rng) {
  std::vector<int32_t> prompt(1 + rng() % 120);
  for (int32_t& token : prompt) token = static_cast<int32_t>(rng() % static_cast<uint64_t>(golden.vocab_size));
  const size_t adapter = rng() % (golden.adapters.size() + 1);
  return greedyRequest(prompt, static_cast<int32_t>(1 + rng() % 24),
                       adapter == 0 ? std::nullopt : std::optional<size_t>(adapter - 1));
}

int64_t contextTokens(executor::Executor& executor) {
  int64_t tokens = 0;
  for (const auto& step : executor.getLatestIterationStats()) tokens += step.numCtxTokens;
  return tokens;
}

// Enqueues the watched request at a random place among 1 to 16 mates, at random times, and returns its hash. Counts
// the prompts' tokens.
std::string runSchedule(executor::Executor& executor, const GoldenCase& golden, const executor::Request& watched,
                        uint64_t seed, int64_t& prompt_tokens) {
  std::mt19937_64 rng(seed);
  const uint64_t mates = 1 + rng() % kMaxMates;
  const uint64_t place = rng() % (mates + 1);
  std::vector<std::pair<executor::IdType, size_t>> running;
  executor::IdType watched_id = 0;
  for (uint64_t i = 0; i <= mates; ++i) {
    const executor::Request request = i == place ? watched : randomMate(golden, rng);
    const executor::IdType id = executor.enqueueRequest(request);
    if (i == place) watched_id = id;
    running.emplace_back(id, request.getInputTokenIds().size());
    prompt_tokens += static_cast<int64_t>(request.getInputTokenIds().size());
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 1500));
  }
  std::string hash;
  for (const auto& [id, prompt_length] : running) {
    const RunAnswer answer = awaitAnswer(executor, id, prompt_length);
    if (id == watched_id) hash = answer.logits_hash;
  }
  return hash;
}

TEST(BatchInvariance, OneHashOverRandomSchedules) {
  const GoldenCase golden = loadGolden("plain", DType::kBFloat16);
  // The longest prompt with the base, and the DoRA adapter: the schedules watch them in turn.
  const auto requests = goldenRequests(golden);
  const std::vector<executor::Request> watched = {requests[0], requests[4]};
  ASSERT_EQ(golden.rows[0].prompt.size(), 150u);
  ASSERT_EQ(golden.adapters.at(golden.rows[4].adapter.value()), "dora_r4_f32");

  std::vector<std::set<std::string>> hashes(watched.size());
  uint64_t seed = kFirstSeed;
  for (const Setting& setting : kSettings) {
    const auto executor = open(golden, setting);
    std::printf("%s: alone, then seeds %llu to %llu\n", setting.name, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(seed + kSchedulesPerSetting - 1));
    int64_t prompt_tokens = 0;
    for (size_t w = 0; w < watched.size(); ++w) {
      prompt_tokens += static_cast<int64_t>(watched[w].getInputTokenIds().size());
      hashes[w].insert(runAlone(*executor, {watched[w]})[0].logits_hash);
    }
    for (int i = 0; i < kSchedulesPerSetting; ++i, ++seed) {
      const size_t w = seed % watched.size();
      hashes[w].insert(runSchedule(*executor, golden, watched[w], seed, prompt_tokens));
      ASSERT_EQ(hashes[w].size(), 1u) << setting.name << ", schedule seed " << seed;
    }
    if (setting.tight) {
      EXPECT_GT(contextTokens(*executor), prompt_tokens) << setting.name << ": nothing was ever paused";
    }
  }
  EXPECT_NE(*hashes[0].begin(), *hashes[1].begin());
  std::printf("logits sha256 %s\n", hashes[0].begin()->c_str());
}

}  // namespace
}  // namespace chorus::test
