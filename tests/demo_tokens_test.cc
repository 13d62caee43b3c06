// The demo's adapters on a float32 engine generate exactly the tokens of transformers and PEFT, all in one batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/json.h"
#include "executor_runs.h"
#include "support/test_paths.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

struct DemoRow {
  std::string name;
  executor::Request request;
  std::vector<int32_t> expected;
};

TEST(DemoTokens, AreThoseOfPeft) {
  const std::filesystem::path demo = test::sourceDir() / "examples/demo";
  const Json model = readJsonFile(demo / "base/config.json");
  const int32_t end_id = model.at("eos_token_id").get<int32_t>();

  std::vector<std::filesystem::path> adapters;
  std::map<std::string, size_t> index;
  std::vector<DemoRow> rows;
  std::ifstream lines(demo / "prompts/expected_float32.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json json = parseJson(line, "expected_float32.jsonl");
    std::string name = "base";
    std::optional<size_t> adapter;
    if (!json.at("adapter").is_null()) {
      name = json.at("adapter").get<std::string>();
      if (index.emplace(name, adapters.size()).second) adapters.push_back(demo / "adapters" / name);
      adapter = index.at(name);
    }
    const auto expected = json.at("generated_ids").get<std::vector<int32_t>>();
    // Allows tokens after the end token, where the request must stop by itself.
    const size_t room = expected.back() == end_id ? 4 : 0;
    executor::Request request = greedyRequest(json.at("prompt_ids").get<std::vector<int32_t>>(),
                                              static_cast<int32_t>(expected.size() + room), adapter);
    request.setEndId(end_id);
    rows.push_back({name, std::move(request), expected});
  }
  ASSERT_EQ(adapters.size(), 5u);

  BuildConfig build = testBuildConfig();
  build.max_batch_size = 64;
  const auto executor =
      openExecutor(testEngine(demo / "base", DType::kFloat32, build), executor::ExecutorConfig(), adapters);
  loadAdapters(*executor, adapters.size());
  std::vector<executor::Request> requests;
  for (const DemoRow& row : rows) requests.push_back(row.request);
  const auto answers = runTogether(*executor, requests);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(answers[i].tokens, rows[i].expected) << rows[i].name;

  const auto steps = executor->getLatestIterationStats();
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.numAdapters == 5; }));
}

}  // namespace
}  // namespace chorus::test
