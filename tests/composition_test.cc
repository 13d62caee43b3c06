// Compositions of several adapters answer as PEFT's add_weighted_adapter(combination_type="cat"), in a batch with
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "executor_runs.h"
#include "formats/safetensors.h"
#include "golden_case.h"
#include "golden_tolerance.h"
#include "kernels/default_isa.h"
#include "kernels/linear/linear.h"
#include "support/test_paths.h"
#include "teacher_forced.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct ComposedRow {
  std::vector<executor::WeightedLora> terms;
  std::vector<int32_t> prompt, tokens;
  std::vector<float> logits;  // [tokens, vocab]

  executor::Request request() const {
    executor::Request request = greedyRequest(prompt, static_cast<int32_t>(tokens.size()), std::nullopt);
    request.setLoraComposition(terms);
    return request;
  }
};

class Composition : public testing::Test {
 protected:
  Composition() {
    const fs::path dir = test::sourceDir() / "tests/goldens/composition";
    const Safetensors expected = Safetensors::open(dir / "expected.safetensors");
    const Json json = readJsonFile(dir / "case.json");
    for (const Json& from : json.at("rows")) {
      ComposedRow row;
      for (const Json& term : from.at("terms")) {
        row.terms.push_back({taskOf(term.at("adapter").get<std::string>()), term.at("weight").get<float>()});
      }
      row.prompt = from.at("prompt").get<std::vector<int32_t>>();
      row.tokens = from.at("tokens").get<std::vector<int32_t>>();
      const TensorView* logits = expected.find(std::to_string(rows_.size()));
      row.logits.resize(static_cast<size_t>(logits->elements()));
      convertElements(logits->bytes.data(), logits->dtype, row.logits.data(), DType::kFloat32, row.logits.size());
      rows_.push_back(std::move(row));
    }
  }
  executor::IdType taskOf(const std::string& adapter) const {
    const auto at = std::find(plain_.adapters.begin(), plain_.adapters.end(), adapter);
    return static_cast<executor::IdType>(at - plain_.adapters.begin()) + 1;
  }

  const GoldenCase plain_ = loadGolden("plain", DType::kFloat32);
  std::vector<ComposedRow> rows_;
};

TEST_F(Composition, IsPeftsAndSharesBatchesWithOthers) {
  for (const Cut& cut : {Cut{}, Cut{.tp_size = 2, .pp_size = 2}}) {
    SCOPED_TRACE(cut.name());
    const fs::path engine = testEngine(plain_.directory, DType::kFloat32, testBuildConfig(), cut);
    const auto executor = openExecutor(engine, executor::ExecutorConfig(), adapterDirectories(plain_));
    loadAdapters(*executor, plain_.adapters.size());
    // Compositions share the batch with rows of single adapters and of the base.
    std::vector<executor::Request> requests = goldenRequests(plain_);
    const size_t others = requests.size();
    for (const ComposedRow& row : rows_) requests.push_back(row.request());
    const auto together = runTogether(*executor, requests);
    for (size_t i = 0; i < others; ++i) EXPECT_EQ(together[i].tokens, plain_.rows[i].tokens) << i;
    const ModelConfig config = Engine::load(engine)->config();
    for (size_t i = 0; i < rows_.size(); ++i) {
      SCOPED_TRACE(i);
      const ComposedRow& row = rows_[i];
      const RunAnswer& answer = together[others + i];
      EXPECT_EQ(answer.tokens, row.tokens);
      const double tolerance = goldenTolerance(DType::kFloat32, linearInputType(defaultIsa(), DType::kFloat32), config,
                                               std::ssize(row.prompt) + std::ssize(row.tokens), largestOf(row.logits));
      EXPECT_LE(largestDifference(answer.generation_logits, row.logits), tolerance);
    }
    const auto alone = runAlone(*executor, requests);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(alone[i].logits_hash, together[i].logits_hash) << i;
  }
}

// A composition of one adapter with weight 1 is the adapter itself. Order and weights distinguish compositions.
TEST_F(Composition, ACompositionOfOneAdapterIsThatAdapter) {
  const auto executor = openExecutor(testEngine(plain_.directory, DType::kFloat32), executor::ExecutorConfig(),
                                     adapterDirectories(plain_));
  const executor::IdType task = taskOf("all_r8_bf16");
  executor::Request composed = greedyRequest({1, 2, 3, 4, 5}, 8, std::nullopt);
  composed.setLoraComposition({{task, 1.0f}});
  executor::Request halved = greedyRequest({1, 2, 3, 4, 5}, 8, std::nullopt);
  halved.setLoraComposition({{task, 0.5f}});
  const auto answers = runTogether(*executor, {greedyRequest({1, 2, 3, 4, 5}, 8, task - 1), composed, halved});
  EXPECT_EQ(answers[1].logits_hash, answers[0].logits_hash);
  EXPECT_NE(answers[2].logits_hash, answers[0].logits_hash);
}

TEST_F(Composition, RefusesDoraAndUnknownMembers) {
  const auto executor = openExecutor(testEngine(plain_.directory, DType::kFloat32), executor::ExecutorConfig(),
                                     adapterDirectories(plain_));
  const auto error = [&](std::vector<executor::WeightedLora> terms) {
    executor::Request request = greedyRequest({1, 2}, 2, std::nullopt);
    request.setLoraComposition(std::move(terms));
    const auto responses = executor->awaitResponses(executor->enqueueRequest(request), std::chrono::seconds(60));
    return !responses.empty() && responses.back().hasError() ? responses.back().getErrorMsg() : "";
  };
  EXPECT_THAT(error({{taskOf("dora_r4_f32"), 1}}), HasSubstr("DoRA"));
  EXPECT_THAT(error({{taskOf("qv_r3_f32"), 1}, {taskOf("dora_r4_f32"), 1}}), HasSubstr("DoRA"));
  EXPECT_THAT(error({{taskOf("qv_r3_f32"), 1}, {99, 1}}), HasSubstr("99"));
}

}  // namespace
}  // namespace chorus::test
