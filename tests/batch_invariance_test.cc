// A request's logits are bitwise the same with any other requests in the batch, arrival times, chunks, pauses, reused
// blocks and numbers of threads: one hash over 204 random schedules, in bfloat16 on the best instruction set.
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

constexpr int kSchedulesPerSetting = 34;
constexpr uint64_t kMaxMates = 64;
constexpr uint64_t kFirstSeed = 4201;

struct Setting {
  const char* name;
  int threads;
  bool tight;  // few rows per step and few blocks: other requests cause chunks and pauses
  bool reuse;
  // If no context is reused or cut short, more context tokens than prompt tokens prove that a request was paused.
  bool provesPauses() const { return tight && !reuse; }
};
constexpr Setting kSettings[] = {{"1 thread", 1, false, true},        {"2 threads, no reuse", 2, false, false},
                                 {"3 threads", 3, false, true},       {"1 thread, tight, no reuse", 1, true, false},
                                 {"2 threads, tight", 2, true, true}, {"4 threads, tight", 4, true, true}};

std::unique_ptr<executor::Executor> open(const GoldenCase& golden, const Setting& setting) {
  BuildConfig build = testBuildConfig();
  build.max_batch_size = kMaxMates + 1;
  executor::ExecutorConfig config;
  config.setNumThreads(setting.threads);
  config.setIterStatsMaxIterations(1 << 20);
  config.getKvCacheConfigRef().setEnableBlockReuse(setting.reuse);
  if (setting.tight) {
    build.max_num_tokens = 80;
    build.tokens_per_block = 16;
    config.setSchedulerConfig(executor::SchedulerConfig(executor::CapacitySchedulerPolicy::kMAX_UTILIZATION));
    config.getKvCacheConfigRef().setMaxTokens(400);
  }
  return openExecutor(testEngine(golden.directory, golden.dtype, build), config, adapterDirectories(golden));
}

// A third of these requests begin with a part of the watched prompt, with its adapter or another.
executor::Request randomMate(const GoldenCase& golden, const executor::Request& watched, std::mt19937_64& rng) {
  std::vector<int32_t> prompt(1 + rng() % 120);
  for (int32_t& token : prompt) token = static_cast<int32_t>(rng() % static_cast<uint64_t>(golden.vocab_size));
  size_t adapter = rng() % (golden.adapters.size() + 1);
  if (rng() % 3 == 0) {
    const auto& theirs = watched.getInputTokenIds();
    const size_t common = 1 + rng() % std::min(prompt.size(), theirs.size());
    std::copy_n(theirs.begin(), common, prompt.begin());
    if (rng() % 2 == 0) adapter = watched.getLoraConfig() ? watched.getLoraConfig()->getTaskId() : 0;
  }
  const auto request = greedyRequest(prompt, static_cast<int32_t>(1 + rng() % 24),
                                     adapter == 0 ? std::nullopt : std::optional<size_t>(adapter - 1));
  return rng() % 4 == 0 ? request : withoutContextLogits(request);
}

int64_t contextTokens(executor::Executor& executor) {
  int64_t tokens = 0;
  for (const auto& step : executor.getLatestIterationStats()) tokens += step.numCtxTokens;
  return tokens;
}

// Enqueues the watched request at a random place among 1 to 64 others, at random times, and returns its answer. Some of
// the others may be cancelled. Adds the lengths of all prompts to prompt_tokens.
RunAnswer runSchedule(executor::Executor& executor, const GoldenCase& golden, const executor::Request& watched,
                      uint64_t seed, bool cancel, int64_t& prompt_tokens) {
  std::mt19937_64 rng(seed);
  const uint64_t mates = 1 + rng() % (rng() % 3 == 0 ? kMaxMates : kMaxMates / 4);
  const uint64_t place = rng() % (mates + 1);
  std::vector<executor::IdType> ids;
  for (uint64_t i = 0; i <= mates; ++i) {
    const executor::Request request = i == place ? watched : randomMate(golden, watched, rng);
    ids.push_back(executor.enqueueRequest(request));
    prompt_tokens += static_cast<int64_t>(request.getInputTokenIds().size());
    const uint64_t victim = rng() % ids.size();
    if (rng() % 8 == 0 && cancel && victim != place) executor.cancelRequest(ids[victim]);
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % (i % 4 == 0 ? 1500 : 100)));
  }
  const RunAnswer answer = awaitAnswer(executor, ids[place], watched.getInputTokenIds().size());
  for (uint64_t i = 0; i <= mates; ++i) {
    if (i != place) awaitEnd(executor, ids[i]);
  }
  return answer;
}

TEST(BatchInvariance, LogitsHaveOneHashUnderRandomSchedules) {
  const GoldenCase golden = loadGolden("plain", DType::kBFloat16);
  // The schedules alternate between the longest prompt with the base and a prompt with the DoRA adapter, each with
  // context logits, so that the prompt is computed, and without, so that it may be reused.
  const auto requests = goldenRequests(golden);
  const std::vector<executor::Request> watched = {requests[0], requests[4]};
  ASSERT_EQ(golden.rows[0].prompt.size(), 150u);
  ASSERT_EQ(golden.adapters.at(golden.rows[4].adapter.value()), "dora_r4_f32");

  std::vector<std::set<std::string>> hashes(watched.size()), generation_hashes(watched.size());
  uint64_t seed = kFirstSeed;
  for (const Setting& setting : kSettings) {
    const auto executor = open(golden, setting);
    std::printf("%s: alone, then seeds %llu to %llu\n", setting.name, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(seed + kSchedulesPerSetting - 1));
    int64_t prompt_tokens = 0, cached_tokens = 0;
    for (size_t w = 0; w < watched.size(); ++w) {
      prompt_tokens += static_cast<int64_t>(watched[w].getInputTokenIds().size());
      const RunAnswer alone = runAlone(*executor, {watched[w]})[0];
      hashes[w].insert(alone.logits_hash);
      generation_hashes[w].insert(alone.generation_hash);
    }
    for (int i = 0; i < kSchedulesPerSetting; ++i, ++seed) {
      const size_t w = seed % watched.size();
      const bool all_logits = seed / watched.size() % 2 == 0;
      const executor::Request request = all_logits ? watched[w] : withoutContextLogits(watched[w]);
      const RunAnswer answer = runSchedule(*executor, golden, request, seed, !setting.provesPauses(), prompt_tokens);
      if (all_logits) hashes[w].insert(answer.logits_hash);
      generation_hashes[w].insert(answer.generation_hash);
      cached_tokens += answer.cached_tokens;
      ASSERT_EQ(hashes[w].size(), 1u) << setting.name << ", schedule seed " << seed;
      ASSERT_EQ(generation_hashes[w].size(), 1u) << setting.name << ", schedule seed " << seed;
    }
    if (setting.provesPauses()) {
      EXPECT_GT(contextTokens(*executor), prompt_tokens) << setting.name << ": no request was ever paused";
    }
    // In a tight pool it depends on thread timing whether a schedule finds blocks. The second of two runs alone always
    // does.
    for (int pass = 0; pass < 2; ++pass) {
      const RunAnswer answer = runAlone(*executor, {withoutContextLogits(watched[0])})[0];
      generation_hashes[0].insert(answer.generation_hash);
      cached_tokens += answer.cached_tokens;
    }
    EXPECT_EQ(generation_hashes[0].size(), 1u) << setting.name << ", alone";
    EXPECT_EQ(cached_tokens > 0, setting.reuse) << setting.name << ": what was cached of the watched requests";
  }
  EXPECT_NE(*hashes[0].begin(), *hashes[1].begin());
  std::printf("logits sha256 %s\n", hashes[0].begin()->c_str());
}

}  // namespace
}  // namespace chorus::test
