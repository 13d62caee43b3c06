// Every golden in one mixed batch under every hostile configuration: tokens stay, and within one instruction set,
// backend and number of tensor-parallel ranks every bit of the logits stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/cpu_features.h"
#include "engine/rank_group.h"
#include "executor_runs.h"
#include "golden_case.h"
#include "hostile_config.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

// Bytes of the golden's largest adapter as the engine holds it.
size_t largestAdapter(const GoldenCase& golden, const std::filesystem::path& engine_dir) {
  const RankGroup ranks(RankGroup::loadEngines(engine_dir), {.threads = 1}, {.kv_blocks = 1});
  size_t largest = 0;
  for (const auto& directory : adapterDirectories(golden)) {
    largest = std::max(largest, ranks.prepareAdapter(readTestAdapter(directory, ranks.engine()))->bytes);
  }
  return largest;
}

class GoldenConfigs : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void compare(const GoldenCase& golden, const HostileConfig& config, executor::ExecutorConfig run) {
    auto requests = goldenRequests(golden);
    // The longest prompt first, the shortest after it: what fits together at the start no longer does when both grow.
    const auto longest = std::max_element(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
      return a.getInputTokenIds().size() < b.getInputTokenIds().size();
    });
    const size_t first = static_cast<size_t>(longest - requests.begin());
    std::rotate(requests.begin(), longest, requests.end());
    executor::ExecutorConfig plain;
    plain.backend = run.backend == "guarded" ? "cpu" : run.backend;  // the same ops
    plain.isa = run.isa;
    const auto usual_dir =
        testEngine(golden.directory, golden.dtype, testBuildConfig(), {.tp_size = config.cut.tp_size});
    const auto usual = runAlone(*openExecutor(usual_dir, plain, adapterDirectories(golden)), requests);

    const auto engine_dir = testEngine(golden.directory, golden.dtype, config.build, config.cut);
    if (config.one_adapter_cache) {
      run.peftCacheConfig.emplace().hostCacheSize = largestAdapter(golden, engine_dir);
    }
    const auto executor = openExecutor(engine_dir, run, adapterDirectories(golden));
    loadAdapters(*executor, golden.adapters.size());
    executor->getLatestIterationStats();  // those of loading are not looked at
    const auto hostile = runTogether(*executor, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      if (golden.dtype == DType::kFloat32) {
        EXPECT_EQ(usual[i].tokens, golden.rows[(first + i) % requests.size()].tokens);
      }
      EXPECT_EQ(hostile[i].tokens, usual[i].tokens);
      EXPECT_EQ(hostile[i].logits_hash, usual[i].logits_hash);
    }

    size_t prompt_tokens = 0, context_tokens = 0;
    for (const auto& request : requests) prompt_tokens += request.getInputTokenIds().size();
    int32_t context_steps = 0, most_adapters = 0;
    for (const auto& step : executor->getLatestIterationStats()) {
      context_steps += step.numContextRequests;
      context_tokens += static_cast<size_t>(step.numCtxTokens);
      most_adapters = std::max(most_adapters, step.numAdapters);
    }
    EXPECT_GT(context_steps, config.context_steps_over) << "the setting did not bite";
    if (config.recomputed) {
      EXPECT_GT(context_tokens, prompt_tokens) << "the setting did not bite";
    }
    if (config.adapters_apart) {
      EXPECT_LT(most_adapters, static_cast<int32_t>(golden.adapters.size())) << "the setting did not bite";
    }
  }
};

TEST_P(GoldenConfigs, ChangeNothing) {
  const auto& [config_name, golden_name] = GetParam();
  const HostileConfig config = loadHostileConfig(config_name);
  for (const DType dtype : kGoldenDTypes) {
    SCOPED_TRACE(std::string(dtypeName(dtype)));
    const GoldenCase golden = loadGolden(golden_name, dtype);
    if (const std::string refusal = cutRefusal(golden, config.cut.tp_size); !refusal.empty()) {
      EXPECT_THAT(testEngineRefusal(golden.directory, dtype, config.build, config.cut), testing::EndsWith(refusal));
      continue;
    }
    if (!config.each_isa) {
      compare(golden, config, config.executor);
      continue;
    }
    for (const Isa isa : availableIsas()) {
      SCOPED_TRACE(std::string(isaName(isa)));
      executor::ExecutorConfig run = config.executor;
      run.isa = std::string(isaName(isa));
      compare(golden, config, run);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenConfigs,
                         testing::Combine(testing::ValuesIn(hostileConfigNames()), testing::ValuesIn(goldenNames())),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace chorus::test
