// A request's logits are bitwise the same with any other requests in the batch, arrival times, chunks, pauses, reused
// blocks and numbers of threads: one hash over 204 random schedules, in bfloat16 on the best instruction set, and one
// for each form of integer weights, inputs and adapters.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "base/cpu_features.h"
#include "convert/convert_model.h"
#include "engine/build.h"
#include "executor_runs.h"
#include "golden_case.h"
#include "kernels/linear/linear.h"
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

// Builds the engine of a test and returns its directory.
using MakeEngine = std::function<std::filesystem::path(const BuildConfig& build)>;

std::unique_ptr<executor::Executor> open(const GoldenCase& golden, const Setting& setting,
                                         const MakeEngine& make_engine,
                                         executor::LoraStorage adapters = executor::LoraStorage::kMODEL) {
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
  executor::PeftCacheConfig cache;
  cache.setLoraStorage(adapters);
  config.setPeftCacheConfig(cache);
  return openExecutor(make_engine(build), config, adapterDirectories(golden));
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

// Runs random schedules and collects the hashes of the requests that are watched.
class Schedules {
 public:
  // They alternate between the longest prompt with the base and a prompt with the DoRA adapter, each with context
  // logits, so that the prompt is computed, and without, so that it may be reused.
  explicit Schedules(const GoldenCase& golden) : golden_(golden) {
    const auto requests = goldenRequests(golden);
    watched_ = {requests[0], requests[4]};
    hashes_.resize(watched_.size());
    generation_hashes_.resize(watched_.size());
    EXPECT_EQ(golden.rows[0].prompt.size(), 150u);
    EXPECT_EQ(golden.adapters.at(golden.rows[4].adapter.value()), "dora_r4_f32");
  }

  void run(executor::Executor& executor, const Setting& setting, int schedules) {
    std::printf("%s: alone, then seeds %llu to %llu\n", setting.name, static_cast<unsigned long long>(seed_),
                static_cast<unsigned long long>(seed_ + schedules - 1));
    int64_t prompt_tokens = 0, cached_tokens = 0;
    for (const auto& request : watched_) prompt_tokens += static_cast<int64_t>(request.getInputTokenIds().size());
    runAll(executor);
    for (int i = 0; i < schedules; ++i, ++seed_) {
      const size_t w = seed_ % watched_.size();
      const bool all_logits = seed_ / watched_.size() % 2 == 0;
      const executor::Request request = all_logits ? watched_[w] : withoutContextLogits(watched_[w]);
      const RunAnswer answer = runSchedule(executor, golden_, request, seed_, !setting.provesPauses(), prompt_tokens);
      if (all_logits) hashes_[w].insert(answer.logits_hash);
      generation_hashes_[w].insert(answer.generation_hash);
      cached_tokens += answer.cached_tokens;
      ASSERT_EQ(hashes_[w].size(), 1u) << setting.name << ", schedule seed " << seed_;
      ASSERT_EQ(generation_hashes_[w].size(), 1u) << setting.name << ", schedule seed " << seed_;
    }
    if (setting.provesPauses()) {
      EXPECT_GT(contextTokens(executor), prompt_tokens) << setting.name << ": no request was ever paused";
    }
    // In a tight pool it depends on thread timing whether a schedule finds blocks. The second of two runs alone always
    // does.
    for (int pass = 0; pass < 2; ++pass) {
      const RunAnswer answer = runAlone(executor, {withoutContextLogits(watched_[0])})[0];
      generation_hashes_[0].insert(answer.generation_hash);
      cached_tokens += answer.cached_tokens;
    }
    EXPECT_EQ(generation_hashes_[0].size(), 1u) << setting.name << ", alone";
    EXPECT_EQ(cached_tokens > 0, setting.reuse) << setting.name << ": what was cached of the watched requests";
  }

  // Runs each of the requests alone.
  void runAll(executor::Executor& executor) {
    const auto alone = runAlone(executor, watched_);
    for (size_t w = 0; w < watched_.size(); ++w) {
      hashes_[w].insert(alone[w].logits_hash);
      generation_hashes_[w].insert(alone[w].generation_hash);
      EXPECT_EQ(hashes_[w].size(), 1u) << "alone";
    }
  }

  const std::string& hash(size_t w) const { return *hashes_[w].begin(); }

 private:
  const GoldenCase& golden_;
  std::vector<executor::Request> watched_;
  std::vector<std::set<std::string>> hashes_, generation_hashes_;  // by request
  uint64_t seed_ = kFirstSeed;
};

TEST(BatchInvariance, LogitsHaveOneHashUnderRandomSchedules) {
  const GoldenCase golden = loadGolden("plain", DType::kBFloat16);
  Schedules schedules(golden);
  for (const Setting& setting : kSettings) {
    const auto executor = open(
        golden, setting, [&](const BuildConfig& build) { return testEngine(golden.directory, golden.dtype, build); });
    schedules.run(*executor, setting, kSchedulesPerSetting);
  }
  EXPECT_NE(schedules.hash(0), schedules.hash(1));
  std::printf("logits sha256 %s\n", schedules.hash(0).c_str());
}

// The form of an engine's weights, of their inputs and of its adapters.
struct Form {
  const char* name;
  std::optional<QuantiseOptions> weights;
  InputFormat inputs = InputFormat::kInt16;
  executor::LoraStorage adapters = executor::LoraStorage::kMODEL;
};
constexpr QuantiseOptions kInt8{.bits = 8}, kInt4{.bits = 4};
const Form kForms[] = {{"W8A16", kInt8},
                       {"W4A16", kInt4},
                       {"W8A8", kInt8, InputFormat::kInt8},
                       {"W4A8", kInt4, InputFormat::kInt8},
                       {"W8A8_per_token", kInt8, InputFormat::kInt8PerToken},
                       {"int8_adapters", std::nullopt, InputFormat::kInt16, executor::LoraStorage::kINT8},
                       {"W8A8_and_int8_adapters", kInt8, InputFormat::kInt8, executor::LoraStorage::kINT8}};

class BatchInvarianceOf : public ::testing::TestWithParam<Form> {};

TEST_P(BatchInvarianceOf, LogitsHaveOneHashUnderRandomSchedules) {
  constexpr int kSchedules = 12;
  const Form& form = GetParam();
  const GoldenCase golden = loadGolden("plain", DType::kBFloat16);
  const TempDir dir;
  convertModel(golden.directory, dir.path() / "checkpoint",
               {.dtype = golden.dtype, .quantise = form.weights, .workers = 1});
  int engines = 0;
  const MakeEngine make_engine = [&](BuildConfig build) {
    if (form.weights) build.activations = form.inputs;
    const auto engine = dir.path() / std::to_string(engines++);
    buildEngine(dir.path() / "checkpoint", engine, build, 1);
    return engine;
  };
  Schedules schedules(golden);
  for (const Setting& setting : {kSettings[1], kSettings[4], kSettings[3]}) {
    schedules.run(*open(golden, setting, make_engine, form.adapters), setting, kSchedules);
    if (HasFatalFailure()) return;
  }
  EXPECT_NE(schedules.hash(0), schedules.hash(1));
}

// Sums of integers are exact, and bfloat16 is multiplied in one order by all of these sets.
TEST_P(BatchInvarianceOf, LogitsHaveOneHashOnAllPortableInstructionSets) {
  const Form& form = GetParam();
  const GoldenCase golden = loadGolden("plain", DType::kBFloat16);
  const TempDir dir;
  convertModel(golden.directory, dir.path() / "checkpoint",
               {.dtype = golden.dtype, .quantise = form.weights, .workers = 1});
  BuildConfig build = testBuildConfig();
  if (form.weights) build.activations = form.inputs;
  buildEngine(dir.path() / "checkpoint", dir.path() / "engine", build, 1);
  Schedules schedules(golden);
  for (const Isa isa : availableIsas()) {
    if (!isPortable(isa, golden.dtype)) continue;
    SCOPED_TRACE(isaName(isa));
    executor::ExecutorConfig config;
    config.setIsa(std::string(isaName(isa)));
    executor::PeftCacheConfig cache;
    cache.setLoraStorage(form.adapters);
    config.setPeftCacheConfig(cache);
    schedules.runAll(*openExecutor(dir.path() / "engine", config, adapterDirectories(golden)));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, BatchInvarianceOf, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace chorus::test
