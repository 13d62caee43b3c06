// Every golden in one mixed batch under every hostile configuration, on every instruction set. With one number of
// tensor-parallel ranks, all settings and all portable instruction sets give one hash of all logits, every other set
// has one of its own, and the tokens are the oracle's.
//
// Of the portable sets (isPortable), which run the same schedules and have the same bits, only the best one runs every
// configuration in every dtype. On the others, each configuration runs in one of the three dtypes and must have the
// best one's hash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>

#include "base/cpu_features.h"
#include "engine/rank_group.h"
#include "executor_runs.h"
#include "golden_case.h"
#include "hostile_config.h"
#include "kernels/linear/linear.h"
#include "padded_run.h"
#include "runtime/adapter_cache/adapter_sizing.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

// The settings that determine the order of every sum. The guarded backend runs the CPU's ops, and pipeline stages
// change no sum.
struct Arithmetic {
  bool reference = false;
  std::optional<Isa> isa;
  int32_t tp_size = 1;
  std::string name() const {
    return (isa ? std::string(isaName(*isa)) : "reference") + ", tp_size " + std::to_string(tp_size);
  }
  bool isOf(const HostileConfig& config) const {
    return (config.executor.getBackend() == "reference") == reference && config.cut.tp_size == tp_size;
  }
};

std::vector<HostileConfig> hostileConfigs() {
  std::vector<HostileConfig> configs;
  for (const std::string& name : hostileConfigNames()) configs.push_back(loadHostileConfig(name));
  return configs;
}

// Returns the arithmetics that the configurations need, on every instruction set, the best set first.
std::vector<Arithmetic> arithmetics(const std::vector<HostileConfig>& configs) {
  std::set<std::pair<bool, int32_t>> wanted;
  for (const auto& config : configs) wanted.emplace(config.executor.getBackend() == "reference", config.cut.tp_size);
  std::vector<Arithmetic> all;
  for (const auto& [reference, tp_size] : wanted) {
    if (reference) all.push_back({.reference = true, .tp_size = tp_size});
    if (reference) continue;
    for (auto isa = availableIsas().rbegin(); isa != availableIsas().rend(); ++isa) {
      all.push_back({.isa = *isa, .tp_size = tp_size});
    }
  }
  return all;
}

// The smallest host cache for the golden: the bytes of its largest adapter, but at least those of an adapter of rank 1
// on all modules, which PeftCacheConfig::maxAdapterSize 1 requires.
size_t largestAdapter(const GoldenCase& golden, const std::filesystem::path& engine_dir) {
  const RankGroup ranks(RankGroup::loadEngines(engine_dir), {.threads = 1}, {.kv_blocks = 1});
  auto largest = static_cast<size_t>(AdapterSizing(ranks.engine()).fullAdapter(1).bytes);
  for (const auto& directory : adapterDirectories(golden)) {
    largest = std::max(largest, ranks.prepareAdapter(readTestAdapter(directory, ranks.engine()))->bytes);
  }
  return largest;
}

class GoldenConfigs : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  GoldenConfigs() : golden_(loadGolden(std::get<0>(GetParam()), std::get<1>(GetParam()))) {
    requests_ = goldenRequests(golden_);
    // The longest prompt comes first. Requests that fit together at the start no longer fit when they grow.
    const auto longest = std::max_element(requests_.begin(), requests_.end(), [](const auto& a, const auto& b) {
      return a.getInputTokenIds().size() < b.getInputTokenIds().size();
    });
    std::rotate(golden_.rows.begin(), golden_.rows.begin() + (longest - requests_.begin()), golden_.rows.end());
    std::rotate(requests_.begin(), longest, requests_.end());
  }

  // Runs each request alone on one thread, with default settings otherwise.
  void runUsual(const Arithmetic& arithmetic) {
    executor::ExecutorConfig config;
    config.setNumThreads(1);
    config.setBackend(arithmetic.reference ? "reference" : "cpu");
    if (arithmetic.isa) config.setIsa(std::string(isaName(*arithmetic.isa)));
    const auto engine_dir =
        testEngine(golden_.directory, golden_.dtype, testBuildConfig(), {.tp_size = arithmetic.tp_size});
    usual_ = runAlone(*openExecutor(engine_dir, config, adapterDirectories(golden_)), requests_);
    for (size_t i = 0; golden_.dtype == DType::kFloat32 && i < requests_.size(); ++i) {
      EXPECT_EQ(usual_[i].tokens, golden_.rows[i].tokens) << "row " << i;
    }
  }

  // Runs all requests together with the configuration. Returns the hash of all logits.
  std::string runHostile(const HostileConfig& config, const Arithmetic& arithmetic) {
    executor::ExecutorConfig run = config.executor;
    if (arithmetic.isa) run.setIsa(std::string(isaName(*arithmetic.isa)));
    const auto engine_dir = testEngine(golden_.directory, golden_.dtype, config.build, config.cut);
    if (config.one_adapter_cache) {
      executor::PeftCacheConfig adapters;
      adapters.setHostCacheSize(largestAdapter(golden_, engine_dir));
      adapters.setMaxAdapterSize(1);
      run.setPeftCacheConfig(adapters);
    }
    const auto executor = openExecutor(engine_dir, run, adapterDirectories(golden_));
    loadAdapters(*executor, golden_.adapters.size());
    executor->getLatestIterationStats();  // discards the statistics of loading
    std::vector<executor::Request> all = requests_, again;
    for (const auto& request : requests_) again.push_back(withoutContextLogits(request));
    if (config.repeat) all.insert(all.end(), again.begin(), again.end());
    std::vector<RunAnswer> answers = runTogether(*executor, all);
    compareGenerated(answers);
    if (config.repeat) compareGenerated(runTogether(*executor, again));
    // A cache that is too small for the requests of a model without windows may be large enough for one with windows.
    const auto engine = Engine::load(engine_dir);
    const bool scarce = run.getKvCacheConfig().getMaxTokens().has_value();
    const std::vector<int32_t> windows = Session::kvCache(engine->config(), engine->buildConfig()).windows;
    if (!scarce || windows == std::vector<int32_t>{0}) checkThatItBites(config, *executor);
    answers.resize(requests_.size());
    return hashOfAll(answers);
  }

  void runPaddedInput(const HostileConfig& config, const Arithmetic& arithmetic) {
    const auto engine_dir = testEngine(golden_.directory, golden_.dtype, config.build, config.cut);
    const auto answers = runPadded(golden_, requests_, engine_dir, config.executor.getBackend(), arithmetic.isa);
    for (size_t i = 0; i < requests_.size(); ++i) {
      EXPECT_EQ(answers[i].tokens, usual_[i].tokens) << "row " << i;
      const auto& usual = usual_[i].generation_logits;
      EXPECT_TRUE(std::equal(answers[i].first_logits.begin(), answers[i].first_logits.end(), usual.begin()))
          << "row " << i << ": other logits";
    }
  }

  bool isPortableHere(const Arithmetic& arithmetic) const {
    return arithmetic.isa && isPortable(*arithmetic.isa, golden_.dtype);
  }

  // config: position among hostileConfigs().
  bool runs(size_t config, const Arithmetic& arithmetic) const {
    if (!isPortableHere(arithmetic)) return true;
    const auto best = std::find_if(availableIsas().rbegin(), availableIsas().rend(),
                                   [&](Isa isa) { return isPortable(isa, golden_.dtype); });
    if (arithmetic.isa == *best) return true;
    const auto dtype = std::find(std::begin(kGoldenDTypes), std::end(kGoldenDTypes), golden_.dtype);
    return config % std::size(kGoldenDTypes) == static_cast<size_t>(dtype - std::begin(kGoldenDTypes));
  }

  GoldenCase golden_;
  std::vector<executor::Request> requests_;
  std::vector<RunAnswer> usual_;

 private:
  // answers: for all requests in order, once or several times.
  void compareGenerated(const std::vector<RunAnswer>& answers) {
    for (size_t i = 0; i < answers.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      EXPECT_EQ(answers[i].tokens, usual_[i % usual_.size()].tokens);
      EXPECT_EQ(answers[i].generation_hash, usual_[i % usual_.size()].generation_hash);
    }
  }

  void checkThatItBites(const HostileConfig& config, executor::Executor& executor) {
    size_t prompt_tokens = 0, context_tokens = 0;
    for (const auto& request : requests_) prompt_tokens += request.getInputTokenIds().size();
    int32_t context_steps = 0, most_adapters = 0;
    for (const auto& step : executor.getLatestIterationStats()) {
      context_steps += step.numContextRequests;
      context_tokens += static_cast<size_t>(step.numCtxTokens);
      most_adapters = std::max(most_adapters, step.numAdapters);
    }
    EXPECT_GT(context_steps, config.context_steps_over) << "the setting had no effect on the run";
    if (config.recomputed) {
      EXPECT_GT(context_tokens, prompt_tokens) << "the setting had no effect on the run";
    }
    // Only a golden with several adapters shows that they do not share a step.
    if (config.adapters_apart && golden_.adapters.size() > 1) {
      EXPECT_LT(most_adapters, static_cast<int32_t>(golden_.adapters.size())) << "the setting had no effect on the run";
    }
    const int32_t reused = executor.getKvCacheStats().reusedBlocks;
    EXPECT_GT(reused, config.reused_blocks_over) << "the setting had no effect on the run";
    if (!config.executor.getKvCacheConfig().getEnableBlockReuse()) {
      EXPECT_EQ(reused, 0);
    }
  }
};

TEST_P(GoldenConfigs, HaveOneHashOfAllLogits) {
  const auto configs = hostileConfigs();
  std::map<int32_t, std::vector<RunAnswer>> portable;  // by tp_size: the usual run on the best portable set
  for (const Arithmetic& arithmetic : arithmetics(configs)) {
    SCOPED_TRACE(arithmetic.name());
    const std::string refusal = cutRefusal(golden_, arithmetic.tp_size);
    std::set<std::string> hashes;
    if (refusal.empty()) {
      const auto best = portable.find(arithmetic.tp_size);
      if (isPortableHere(arithmetic) && best != portable.end()) {
        usual_ = best->second;
      } else {
        runUsual(arithmetic);
        if (isPortableHere(arithmetic)) portable.emplace(arithmetic.tp_size, usual_);
      }
      hashes.insert(hashOfAll(usual_));
    }
    int settings = 1;
    for (size_t i = 0; i < configs.size(); ++i) {
      const HostileConfig& config = configs[i];
      if (!arithmetic.isOf(config) || !runs(i, arithmetic)) continue;
      SCOPED_TRACE(config.name);
      if (!refusal.empty()) {
        EXPECT_THAT(testEngineRefusal(golden_.directory, golden_.dtype, config.build, config.cut),
                    testing::EndsWith(refusal));
        continue;
      }
      // The architecture of this example is linked into this test but not into the program.
      if (config.padded_input && golden_.directory.parent_path().filename() == "troubadour") continue;
      ++settings;
      if (config.padded_input)
        runPaddedInput(config, arithmetic);
      else
        hashes.insert(runHostile(config, arithmetic));
      EXPECT_EQ(hashes.size(), 1u) << "a setting or an instruction set changed logits";
    }
    if (hashes.empty()) continue;
    EXPECT_GT(settings, 1);
    std::printf("%s %s, %s: %s under %d settings\n", golden_.name.c_str(),
                std::string(dtypeName(golden_.dtype)).c_str(), arithmetic.name().c_str(), hashes.begin()->c_str(),
                settings);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenConfigs,
                         testing::Combine(testing::ValuesIn(goldenNames()), testing::ValuesIn(kGoldenDTypes)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::string(dtypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace chorus::test
