// Logits post-processors in the executor: their inputs, their effect, and that one that throws ends only its own
// requests.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::BeamTokens;
using executor::DataType;
using executor::IdType;
using executor::LogitsPostProcessorConfig;
using executor::LogitsPostProcessorMap;
using executor::Request;
using executor::Shape;
using executor::StreamPtr;
using executor::Tensor;
using testing::CoreFixture;
using ::testing::ElementsAre;
using testing::expectedTokens;
using testing::fakeLogits;
using testing::fakeSource;
using testing::Gate;
using testing::hashAdapter;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr float kBanned = -std::numeric_limits<float>::infinity();

void allow(Tensor& logits, int32_t token) {
  auto* values = static_cast<float*>(logits.getData());
  for (size_t i = 0; i < logits.getSize(); ++i) values[i] = static_cast<int32_t>(i) == token ? 0.0f : kBanned;
}

class ExecutorPostProcessorsTest : public CoreFixture {
 protected:
  void startWith(LogitsPostProcessorMap named, executor::LogitsPostProcessorBatched batched = nullptr) {
    LogitsPostProcessorConfig config(std::move(named));
    if (batched != nullptr) config.setProcessorBatched(batched);
    options.logits_post_processors = config;
    start();
  }
  static Request named(executor::VecTokens prompt, int32_t max_tokens, const std::string& name) {
    Request r = request(std::move(prompt), max_tokens);
    r.setLogitsPostProcessorName(name);
    return r;
  }
};

// The function gets the model's logits row and the tokens of the prompt and the generation so far; the logits that it
// leaves determine the next token.
TEST_F(ExecutorPostProcessorsTest, SeesEachStepAndDecides) {
  std::vector<executor::VecTokens> seen;
  std::vector<float> first_row;
  const auto count_up = [&](IdType id, Tensor& logits, const BeamTokens& tokens, const StreamPtr& stream,
                            std::optional<IdType> client) {
    EXPECT_EQ(id, 1u);
    EXPECT_EQ(client, 77u);
    EXPECT_EQ(stream, nullptr);
    EXPECT_EQ(logits.getDataType(), DataType::kFP32);
    EXPECT_EQ(logits.getShape(), Shape({1, 1, kVocab}));
    const auto* values = static_cast<const float*>(logits.getData());
    if (seen.empty()) first_row.assign(values, values + kVocab);
    seen.push_back(tokens.at(0));
    allow(logits, static_cast<int32_t>(seen.size()));
  };
  startWith({{"count", count_up}});
  Request r = named({9, 8}, 4, "count");
  r.setClientId(77);
  EXPECT_THAT(resultOf(enqueue(r)).outputTokenIds.at(0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(
      seen, ElementsAre(ElementsAre(9, 8), ElementsAre(9, 8, 1), ElementsAre(9, 8, 1, 2), ElementsAre(9, 8, 1, 2, 3)));
  std::vector<float> model(kVocab);
  fakeLogits(std::vector<int32_t>{9, 8}, hashAdapter(nullptr), model);
  EXPECT_EQ(first_row, model);
}

// The post-processor runs before the sampling rules: a banned word stays banned even if the post-processor prefers it.
TEST_F(ExecutorPostProcessorsTest, ComesBeforeTheRulesOfSampling) {
  startWith({});
  Request r = request({5}, 2);
  r.setLogitsPostProcessor([](IdType, Tensor& logits, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    auto* values = static_cast<float*>(logits.getData());
    std::fill(values, values + kVocab, 0.0f);
    values[11] = 9.0f;
    values[12] = 8.0f;
  });
  r.setBadWords({{11}});
  EXPECT_THAT(resultOf(enqueue(r)).outputTokenIds.at(0), ElementsAre(12, 12));
}

// A function in the request itself, with streaming and an adapter, beside a request without a post-processor.
TEST_F(ExecutorPostProcessorsTest, WorksWithAnAdapterAndAStream) {
  startWith({});
  core->registerAdapter(3, fakeSource("red"));
  Request r({1, 2}, 6, true);
  r.setLoraConfig(executor::LoraConfig(3));
  r.setLogitsPostProcessor([](IdType, Tensor& logits, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    auto* values = static_cast<float*>(logits.getData());
    std::transform(values, values + kVocab, values, [](float v) { return -v; });
  });
  const auto beside = enqueue(request({1, 2}, 6));
  executor::VecTokens streamed;
  for (const auto& response : finish(enqueue(r))) {
    const auto& tokens = response.getResult().outputTokenIds.at(0);
    streamed.insert(streamed.end(), tokens.begin(), tokens.end());
  }
  // The expected tokens: the least likely ones under the adapter's logits of the fake network.
  const PreparedAdapter red{.content_hash = "red"};
  std::vector<int32_t> history{1, 2}, least;
  std::vector<float> row(kVocab);
  for (int i = 0; i < 6; ++i) {
    fakeLogits(history, hashAdapter(&red), row);
    least.push_back(static_cast<int32_t>(std::min_element(row.begin(), row.end()) - row.begin()));
    history.push_back(least.back());
  }
  EXPECT_EQ(streamed, least);
  EXPECT_EQ(resultOf(beside).outputTokenIds.at(0), expectedTokens({1, 2}, 6, kVocab));
}

TEST_F(ExecutorPostProcessorsTest, TheBatchedOneGetsAllThatAskForItInOneCall) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  std::vector<std::vector<IdType>> calls;
  const auto batched = [&](const std::vector<IdType>& ids, std::vector<Tensor>& logits,
                           const std::vector<std::reference_wrapper<const BeamTokens>>& tokens, const StreamPtr&,
                           const std::vector<std::optional<IdType>>& clients) {
    calls.push_back(ids);
    ASSERT_EQ(logits.size(), ids.size());
    ASSERT_EQ(clients.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(clients[i], ids[i] == 2 ? std::optional<IdType>(50) : std::nullopt);
      const int32_t token = static_cast<int32_t>(10 * ids[i]) + static_cast<int32_t>(tokens[i].get().at(0).size());
      // The function may replace the tensor instead of writing into it.
      if (i % 2 == 1) logits[i] = Tensor::cpu<float>(logits[i].getShape());
      allow(logits[i], token);
    }
  };
  startWith({}, batched);
  const auto first = enqueue(named({1}, 3, Request::kBatchedPostProcessorName));
  gate.awaitArrivals(1);
  Request second_request = named({1, 2}, 2, Request::kBatchedPostProcessorName);
  second_request.setClientId(50);
  const auto second = enqueue(second_request);
  const auto plain = enqueue(request({3}, 2));
  gate.open();
  EXPECT_THAT(resultOf(first).outputTokenIds.at(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(resultOf(second).outputTokenIds.at(0), ElementsAre(22, 23));
  EXPECT_EQ(resultOf(plain).outputTokenIds.at(0), expectedTokens({3}, 2, kVocab));
  core->shutdown();
  EXPECT_THAT(calls, ElementsAre(ElementsAre(1), UnorderedElementsAre(1, 2), UnorderedElementsAre(1, 2)));
}

TEST_F(ExecutorPostProcessorsTest, AProcessorThatThrowsEndsOnlyItsRequest) {
  const auto throws_at_3 = [](IdType, Tensor&, const BeamTokens& tokens, const StreamPtr&, std::optional<IdType>) {
    if (tokens.at(0).size() == 3) throw std::runtime_error("my grammar broke");
  };
  const auto throws_a_number = [](IdType, Tensor&, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    throw 7;
  };
  const auto shrinks = [](IdType, Tensor& logits, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    logits = Tensor::cpu<float>({1, 1, 3});
  };
  const auto leaves_integers = [](IdType, Tensor& logits, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    logits = Tensor::cpu<int32_t>({1, 1, kVocab});
  };
  const auto bans_all = [](IdType, Tensor& logits, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    allow(logits, -1);
  };
  const auto batched = [](const std::vector<IdType>&, std::vector<Tensor>&,
                          const std::vector<std::reference_wrapper<const BeamTokens>>&, const StreamPtr&,
                          const std::vector<std::optional<IdType>>&) { throw std::runtime_error("all of you"); };
  startWith({{"late", throws_at_3},
             {"number", throws_a_number},
             {"shrinks", shrinks},
             {"integers", leaves_integers},
             {"bans", bans_all}},
            batched);
  const auto beside = enqueue(request({1}, 12));
  const auto late = enqueue(named({1}, 9, "late")), number = enqueue(named({1}, 9, "number"));
  EXPECT_EQ(errorOf(late), "Encountered an error in the logits post-processor: my grammar broke");
  EXPECT_THAT(errorOf(number), HasSubstr("not a std::exception"));
  EXPECT_THAT(errorOf(enqueue(named({1}, 9, "shrinks"))), HasSubstr("not float32 [1, 1, 50]"));
  EXPECT_THAT(errorOf(enqueue(named({1}, 9, "integers"))), HasSubstr("not float32 [1, 1, 50]"));
  EXPECT_THAT(errorOf(enqueue(named({1}, 9, "bans"))), HasSubstr("after the logits post-processor"));
  EXPECT_THAT(errorOf(enqueue(named({1}, 9, "batched"))), HasSubstr("all of you"));
  EXPECT_EQ(resultOf(beside).outputTokenIds.at(0), expectedTokens({1}, 12, kVocab));
}

TEST_F(ExecutorPostProcessorsTest, TheBatchedOneMustLeaveATensorForEach) {
  const auto drops_one = [](const std::vector<IdType>&, std::vector<Tensor>& logits,
                            const std::vector<std::reference_wrapper<const BeamTokens>>&, const StreamPtr&,
                            const std::vector<std::optional<IdType>>&) { logits.pop_back(); };
  startWith({}, drops_one);
  const auto beside = enqueue(request({1}, 12));
  EXPECT_EQ(errorOf(enqueue(named({1}, 9, Request::kBatchedPostProcessorName))),
            "Encountered an error in the logits post-processor: it left 0 tensors for 1 requests");
  EXPECT_EQ(resultOf(beside).outputTokenIds.at(0), expectedTokens({1}, 12, kVocab));
}

TEST_F(ExecutorPostProcessorsTest, ATensorThatIsKeptStaysAsItWas) {
  std::vector<Tensor> kept;
  std::vector<std::vector<float>> seen;
  const auto keep = [&](IdType, Tensor& logits, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {
    const auto* values = static_cast<const float*>(logits.getData());
    seen.emplace_back(values, values + kVocab);
    kept.push_back(logits);
  };
  startWith({{"keep", keep}});
  resultOf(enqueue(named({9, 8}, 3, "keep")));
  core->shutdown();
  ASSERT_EQ(kept.size(), 3u);
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto* values = static_cast<const float*>(kept[i].getData());
    EXPECT_EQ(std::vector<float>(values, values + kVocab), seen[i]) << i;
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST_F(ExecutorPostProcessorsTest, NamesAreCheckedWhenTheRequestComes) {
  const auto nothing = [](IdType, Tensor&, const BeamTokens&, const StreamPtr&, std::optional<IdType>) {};
  startWith({{"known", nothing}});
  const auto refusal = [&](const Request& r) {
    try {
      enqueue(r);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(named({1}, 1, "unknown")), "LogitsPostProcessor unknown not found.");
  Request both = named({1}, 1, "known");
  both.setLogitsPostProcessor(nothing);
  EXPECT_THAT(refusal(both), HasSubstr("not both"));
  Request empty = request({1}, 1);
  empty.setLogitsPostProcessor(executor::LogitsPostProcessor());
  EXPECT_THAT(refusal(empty), HasSubstr("empty function"));
  EXPECT_EQ(errorOf(enqueue(named({1}, 1, "batched"))),
            "Encountered an error when fetching new request: Batched logits post processor is not defined.");
  EXPECT_EQ(resultOf(enqueue(named({1}, 1, "known"))).outputTokenIds.at(0), expectedTokens({1}, 1, kVocab));
}

// A request that is paused and recomputed passes the same tokens to its function and gives the same answer.
TEST_F(ExecutorPostProcessorsTest, PausesDoNotChangeTheCalls) {
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 16;
  options.request_stats_max = 1000;
  std::map<IdType, size_t> length;
  const auto watch = [&](IdType id, Tensor&, const BeamTokens& tokens, const StreamPtr&, std::optional<IdType>) {
    if (length.contains(id)) {
      EXPECT_EQ(tokens.at(0).size(), length[id] + 1);
    }
    length[id] = tokens.at(0).size();
  };
  Gate gate;
  gate.close();
  holdStep(0, gate);
  startWith({{"watch", watch}});
  std::vector<IdType> ids;
  for (int32_t i = 1; i <= 4; ++i) ids.push_back(enqueue(named({i, i}, 30, "watch")));
  gate.open();  // the first step waits for all of them
  for (int32_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(resultOf(ids[static_cast<size_t>(i) - 1]).outputTokenIds.at(0), expectedTokens({i, i}, 30, kVocab));
  }
  core->shutdown();
  bool paused = false;
  for (const auto& step : core->takeRequestStats()) {
    for (const auto& stats : step.requestStats) paused |= stats.paused;
  }
  EXPECT_TRUE(paused) << "the setting had no effect on the run";
}

}  // namespace
}  // namespace chorus
