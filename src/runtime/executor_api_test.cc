// The public Executor over a real engine, from a client's side.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/testing/error_of.h"
#include "convert/lora_convert.h"
#include "runtime/testing/engine_fixture.h"

namespace chorus::executor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kLong{60000};

// Blocks a request at its first token until open().
class Gate {
 public:
  void putBefore(Request& request) {
    request.setLogitsPostProcessor(
        [this](IdType, Tensor&, const BeamTokens&, const StreamPtr&, std::optional<IdType>) { reachAndWait(); });
  }
  void awaitReached() { reached_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  void reachAndWait() {
    if (std::exchange(is_reached_, true)) return;
    reached_.set_value();
    opened_.get_future().wait();
  }
  bool is_reached_ = false;  // step thread only
  std::promise<void> reached_, opened_;
};

// Returns once the thread has been asleep in 10 checks in a row, so that it most likely blocks.
void awaitSleep(pid_t thread) {
  for (int seen = 0; seen < 10; std::this_thread::sleep_for(milliseconds(1))) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    seen = state == "S" ? seen + 1 : 0;
  }
}

class ExecutorApiTest : public EngineFixture {
 protected:
  static Executor open(const ExecutorConfig& config = small()) {
    return Executor(directory_ / "lora", ModelType::kDECODER_ONLY, config);
  }
  static Request plain(VecTokens prompt, SizeType32 max_tokens, bool streaming = false) {
    OutputConfig output;
    output.excludeInputFromOutput = true;
    return Request(std::move(prompt), max_tokens, streaming, SamplingConfig(), output);
  }
  // Awaits all responses of a request, including the final one.
  static std::vector<Response> finish(Executor& executor, IdType id) {
    std::vector<Response> all;
    do {
      auto responses = executor.awaitResponses(id, kLong);
      if (responses.empty()) throw std::runtime_error("no answer in time");
      std::move(responses.begin(), responses.end(), std::back_inserter(all));
    } while (!all.back().hasError() && !all.back().getResult().isFinal);
    return all;
  }
  static VecTokens tokensOf(Executor& executor, const Request& request) {
    const auto all = finish(executor, executor.enqueueRequest(request));
    if (all.back().hasError()) throw std::runtime_error(all.back().getErrorMsg());
    return all.back().getResult().outputTokenIds.at(0);
  }
};

TEST_F(ExecutorApiTest, AwaitsOneSeveralAndAll) {
  Executor executor = open();
  const VecTokens expected = tokensOf(executor, plain({5, 17, 40}, 6));
  const auto ids = executor.enqueueRequests({plain({5, 17, 40}, 6), plain({5, 17, 40}, 6), plain({5, 17, 40}, 6)});
  ASSERT_EQ(ids.size(), 3u);
  const auto several = executor.awaitResponses({ids[2], ids[0]}, kLong);
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(several[0].at(0).getRequestId(), ids[2]);
  EXPECT_EQ(several[1].at(0).getRequestId(), ids[0]);
  EXPECT_EQ(several[1].at(0).getResult().outputTokenIds.at(0), expected);
  const auto any = executor.awaitResponses(kLong);
  ASSERT_EQ(any.size(), 1u);
  EXPECT_EQ(any[0].getRequestId(), ids[1]);
  EXPECT_EQ(executor.getNumResponsesReady(), 0);
  EXPECT_TRUE(executor.awaitResponses(milliseconds(1)).empty());
  EXPECT_EQ(executor.awaitResponses(ids[1], milliseconds(1)).at(0).getErrorMsg(),
            "ReqId " + std::to_string(ids[1]) + " has already been processed and was terminated.");
  // The gate holds this request, so that the timeouts pass first.
  Gate gate;
  Request held = plain({1}, 3);
  gate.putBefore(held);
  const auto slow = executor.enqueueRequest(held);
  EXPECT_TRUE(executor.awaitResponses(slow, milliseconds(0)).empty());
  EXPECT_TRUE(executor.awaitResponses(std::vector<IdType>{slow}, milliseconds(5)).at(0).empty());
  EXPECT_TRUE(executor.awaitResponses(milliseconds(5)).empty());
  gate.open();
  EXPECT_EQ(finish(executor, slow).back().getResult().outputTokenIds.at(0).size(), 3u);
}

TEST_F(ExecutorApiTest, StreamsNewTokensOrAllOfThem) {
  Executor executor = open();
  const VecTokens whole = tokensOf(executor, plain({9, 8, 7}, 8));
  VecTokens joined;
  for (const auto& response : finish(executor, executor.enqueueRequest(plain({9, 8, 7}, 8, true)))) {
    const auto& tokens = response.getResult().outputTokenIds.at(0);
    joined.insert(joined.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(joined, whole);
  Request all = plain({9, 8, 7}, 8, true);
  all.setReturnAllGeneratedTokens(true);
  all.setClientId(31);
  size_t length = 0;
  for (const auto& response : finish(executor, executor.enqueueRequest(all))) {
    const auto& tokens = response.getResult().outputTokenIds.at(0);
    EXPECT_EQ(tokens, VecTokens(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(tokens.size())));
    EXPECT_GT(tokens.size(), length);
    length = tokens.size();
    EXPECT_EQ(response.getClientId(), 31u);
  }
  EXPECT_EQ(length, whole.size());
}

TEST_F(ExecutorApiTest, EndsAtStopWordsEndIdAndTimeLimit) {
  Executor executor = open();
  const VecTokens whole = tokensOf(executor, plain({3, 3, 4}, 12));
  const auto first = [&](TokenIdType token) { return std::find(whole.begin(), whole.end(), token) - whole.begin(); };
  const auto endOf = [&](const Request& request) {
    return finish(executor, executor.enqueueRequest(request)).back().getResult();
  };
  Request stop = plain({3, 3, 4}, 12);
  stop.setStopWords({{whole[4], whole[5]}});
  const Result stopped = endOf(stop);
  EXPECT_THAT(stopped.finishReasons, ElementsAre(FinishReason::kSTOP_WORDS));
  EXPECT_LE(stopped.outputTokenIds.at(0).size(), 6u);
  Request bad = plain({3, 3, 4}, 12);
  bad.setBadWords({{whole[0]}});
  const VecTokens without = endOf(bad).outputTokenIds.at(0);
  EXPECT_EQ(std::find(without.begin(), without.end(), whole[0]), without.end());
  Request end = plain({3, 3, 4}, 12);
  end.setEndId(whole[5]);
  const Result ended = endOf(end);
  EXPECT_THAT(ended.finishReasons, ElementsAre(FinishReason::kEND_ID));
  EXPECT_EQ(std::ssize(ended.outputTokenIds.at(0)), first(whole[5]) + 1);
  Request overdue = plain({3, 3, 4}, 120);
  overdue.setAllottedTimeMs(milliseconds(0));
  EXPECT_THAT(endOf(overdue).finishReasons, ElementsAre(FinishReason::kTIMED_OUT));
}

TEST_F(ExecutorApiTest, CancelsAndShutsDown) {
  Executor executor = open();
  // The gate keeps the request from ending before it is cancelled.
  Gate gate;
  Request held = plain({1, 2}, 120, true);
  gate.putBefore(held);
  const auto cancelled = executor.enqueueRequest(held), other = executor.enqueueRequest(plain({3}, 5));
  gate.awaitReached();
  executor.cancelRequest(cancelled);
  executor.cancelRequest(4711);
  gate.open();
  const auto end = finish(executor, cancelled).back().getResult();
  EXPECT_THAT(end.finishReasons, ElementsAre(FinishReason::kCANCELLED));
  EXPECT_EQ(finish(executor, other).back().getResult().outputTokenIds.at(0).size(), 5u);
  Gate shutdown_gate;
  Request open_held = plain({1, 2}, 120);
  shutdown_gate.putBefore(open_held);
  const auto open_request = executor.enqueueRequest(open_held);
  Executor moved = std::move(executor);
  EXPECT_TRUE(moved.isParticipant());
  shutdown_gate.awaitReached();
  // shutdown() waits for the step that the gate holds.
  auto opener = std::async(std::launch::async, [&] {
    while (moved.canEnqueueRequests()) std::this_thread::yield();
    shutdown_gate.open();
  });
  moved.shutdown();
  opener.get();
  EXPECT_FALSE(moved.canEnqueueRequests());
  EXPECT_EQ(errorOf([&] { moved.enqueueRequest(plain({1}, 1)); }), "Shutdown called, cannot enqueue requests");
  EXPECT_THAT(finish(moved, open_request).back().getResult().finishReasons, ElementsAre(FinishReason::kCANCELLED));
}

TEST_F(ExecutorApiTest, DestroyingTheExecutorAnswersThreadsThatWait) {
  auto executor = std::make_unique<Executor>(open());
  Gate gate;
  Request held = plain({1, 2}, 120);
  gate.putBefore(held);
  const auto id = executor->enqueueRequest(held);
  std::promise<pid_t> waiter;
  auto any = std::async(std::launch::async, [&, &e = *executor] {
    waiter.set_value(gettid());
    return e.awaitResponses(milliseconds::max());
  });
  awaitSleep(waiter.get_future().get());
  gate.open();
  executor.reset();
  const auto responses = any.get();
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].getRequestId(), id);
  EXPECT_TRUE(responses[0].getResult().isFinal);
}

TEST_F(ExecutorApiTest, QueuesByPriorityUpToTheirNumber) {
  ExecutorConfig config = small();
  config.setMaxBatchSize(1);
  config.setMaxQueueSize(3);
  Gate gate;
  Executor executor = open(config);
  Request first = plain({1}, 100, true);
  gate.putBefore(first);
  const auto running = executor.enqueueRequest(first);
  gate.awaitReached();
  Request low = plain({2}, 1), high = plain({3}, 1);
  low.setPriority(0.1f);
  high.setPriority(0.9f);
  // Requests run one at a time and call back on the executor's thread, so the answers come in the order of execution.
  std::vector<IdType> order;
  std::promise<void> last;
  const auto answered = [&](const Response& response) {
    order.push_back(response.getRequestId());
    if (order.size() == 3) last.set_value();
  };
  const auto later = executor.enqueueRequest(low, answered), sooner = executor.enqueueRequest(high, answered);
  executor.enqueueRequest(low, answered);
  EXPECT_EQ(errorOf([&] { executor.enqueueRequest(high); }),
            "Maximum queue size of 3 has been reached, please try again later");
  gate.open();
  executor.cancelRequest(running);
  last.get_future().wait();
  EXPECT_EQ(order[0], sooner);
  EXPECT_EQ(order[1], later);
}

// A running request keeps the weights it started with; the next request with the same id uses the new ones.
TEST_F(ExecutorApiTest, NewWeightsUnderATaskIdAreUsedByLaterRequestsOnly) {
  Gate gate;
  Executor executor = open();
  const auto first = kModel / "adapters" / "all_r8_bf16", second = kModel / "adapters" / "qv_r3_f32";
  const VecTokens prompt{5, 17, 40, 3, 99};
  const auto ask = [&](LoraConfig lora, SizeType32 tokens, bool streaming = false) {
    Request request = plain(prompt, tokens, streaming);
    request.setLoraConfig(std::move(lora));
    return request;
  };
  const VecTokens old_answer = tokensOf(executor, ask(tensorsOf(first, 1), 100));
  const VecTokens new_answer = tokensOf(executor, ask(tensorsOf(second, 2), 100));
  ASSERT_NE(old_answer, new_answer);
  Request old = ask(LoraConfig(1), 100, true);
  gate.putBefore(old);
  const auto running = executor.enqueueRequest(old);
  gate.awaitReached();
  {
    // The client owns the tensors' memory and may overwrite it after enqueueRequest() returns.
    const LoraConfig sent = tensorsOf(second, 1);
    Tensor weights = *sent.getWeights(), config = *sent.getConfig();
    const auto id =
        executor.enqueueRequest(ask(LoraConfig(1, Tensor::of(DataType::kFP32, weights.getData(), weights.getShape()),
                                               Tensor::of(DataType::kINT32, config.getData(), config.getShape())),
                                    100));
    weights.setZero();
    config.setZero();
    gate.open();
    EXPECT_EQ(finish(executor, id).back().getResult().outputTokenIds.at(0), new_answer);
  }
  Request all = ask(LoraConfig(1), 100);
  EXPECT_EQ(tokensOf(executor, all), new_answer) << "by the id alone";
  VecTokens streamed;
  const auto rest = finish(executor, running);
  for (const auto& response : rest) {
    const auto& tokens = response.getResult().outputTokenIds.at(0);
    streamed.insert(streamed.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(streamed, old_answer) << "the running one keeps its own";
}

TEST_F(ExecutorApiTest, PrefetchedAdaptersAreKnownFromTheStart) {
  const auto adapter = kModel / "adapters" / "qv_r3_f32", prefetch = directory_ / "prefetch";
  convertLora(adapter, prefetch / "12", DType::kFloat32);
  std::filesystem::create_directories(prefetch / "not a number");
  std::filesystem::create_directories(prefetch / "12x");
  ExecutorConfig config = small();
  PeftCacheConfig adapters = *config.getPeftCacheConfig();
  adapters.setLoraPrefetchDir(prefetch.string());
  config.setPeftCacheConfig(adapters);
  Executor executor = open(config);
  executor.registerAdapter(1, adapter);
  const auto ask = [&](IdType task) {
    Request request = plain({5, 17, 40}, 10);
    request.setLoraConfig(LoraConfig(task));
    return tokensOf(executor, request);
  };
  EXPECT_EQ(ask(12), ask(1));
  EXPECT_NE(ask(12), tokensOf(executor, plain({5, 17, 40}, 10)));
  adapters.setLoraPrefetchDir((directory_ / "nowhere").string());
  config.setPeftCacheConfig(adapters);
  EXPECT_THAT(errorOf([&] { open(config); }), HasSubstr("loraPrefetchDir"));
}

TEST_F(ExecutorApiTest, PostProcessesUnderAnAdapterAndCounts) {
  ExecutorConfig config = small();
  config.setRequestStatsMaxIterations(50);
  LogitsPostProcessorConfig processors;
  processors.setProcessorMap(
      {{"force", [](IdType, Tensor& logits, const BeamTokens& tokens, const StreamPtr& stream, std::optional<IdType>) {
          Tensor forced = Tensor::cpu(logits.getDataType(), logits.getShape());
          static_cast<float*>(forced.getData())[tokens.at(0).size()] = 1.0f;
          logits.setFrom(forced, stream);
        }}});
  config.setLogitsPostProcessorConfig(processors);
  Executor executor = open(config);
  executor.registerAdapter(1, kModel / "adapters" / "all_r8_bf16");
  OutputConfig output;
  output.excludeInputFromOutput = true;
  output.returnPerfMetrics = true;
  Request request({5, 6}, 4, true, SamplingConfig(), output);
  request.setLoraConfig(LoraConfig(1));
  request.setLogitsPostProcessorName("force");
  const auto id = executor.enqueueRequest(request);
  VecTokens streamed;
  const auto all = finish(executor, id);
  for (const auto& response : all) {
    const auto& tokens = response.getResult().outputTokenIds.at(0);
    streamed.insert(streamed.end(), tokens.begin(), tokens.end());
  }
  EXPECT_THAT(streamed, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(all.back().getResult().requestPerfMetrics->lastIter, 3u);
  executor.shutdown();
  const auto steps = executor.getLatestIterationStats();
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].numAdapters, 1);
  EXPECT_EQ(steps[0].inflightBatchingStats->numCtxTokens, 2);
  EXPECT_EQ(steps[3].inflightBatchingStats->numGenRequests, 1);
  EXPECT_EQ(steps[3].numCompletedRequests, 1);
  EXPECT_GT(steps[3].kvCacheStats->maxNumBlocks, 0);
  const auto requests = executor.getLatestRequestStats();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[3].requestStats.at(0).id, id);
  EXPECT_EQ(requests[3].requestStats.at(0).stage, RequestStage::kGENERATION_COMPLETE);
  EXPECT_TRUE(executor.getLatestDebugTensors().empty());
  EXPECT_FALSE(executor.getKVCacheEventManager());
  EXPECT_STREQ(version(), CHORUS_VERSION);
}

TEST_F(ExecutorApiTest, UnsupportedRequestsAreRefusedByName) {
  Executor executor = open();
  const auto refused = [&](auto change) {
    Request request = plain({1, 2}, 2);
    change(request);
    const Response response = answer(executor, request);
    EXPECT_TRUE(response.hasError());
    if (!response.hasError()) return std::string();
    EXPECT_EQ(response.getErrorCode(), ResponseErrorCode::kUNSUPPORTED);
    return response.getErrorMsg();
  };
  using GuideType = GuidedDecodingParams::GuideType;
  using Range = KvCacheRetentionConfig::TokenRangeRetentionConfig;
  EXPECT_THAT(refused([](Request& r) { r.setPositionIds({0, 1}); }), HasSubstr("positionIds"));
  EXPECT_THAT(refused([](Request& r) { r.setExternalDraftTokensConfig(ExternalDraftTokensConfig({1})); }),
              HasSubstr("externalDraftTokensConfig"));
  EXPECT_THAT(refused([](Request& r) { r.setPromptTuningConfig(PromptTuningConfig(Tensor::cpu<float>({1, 2}))); }),
              HasSubstr("pTuningConfig"));
  EXPECT_THAT(refused([](Request& r) { r.setMropeConfig(MropeConfig(Tensor::cpu<float>({1}), 0)); }),
              HasSubstr("mRopeConfig"));
  EXPECT_THAT(refused([](Request& r) { r.setLookaheadConfig(LookaheadDecodingConfig()); }),
              HasSubstr("lookaheadConfig"));
  EXPECT_THAT(refused([](Request& r) { r.setEagleConfig(EagleConfig()); }), HasSubstr("eagleConfig"));
  EXPECT_THAT(refused([](Request& r) { r.setGuidedDecodingParams(GuidedDecodingParams(GuideType::kJSON)); }),
              HasSubstr("guidedDecodingParams"));
  EXPECT_THAT(refused([](Request& r) { r.setLanguageAdapterUid(1); }), HasSubstr("languageAdapterUid"));
  EXPECT_THAT(refused([](Request& r) { r.setRequestType(RequestType::REQUEST_TYPE_CONTEXT_ONLY); }),
              HasSubstr("REQUEST_TYPE_CONTEXT_AND_GENERATION"));
  EXPECT_THAT(refused([](Request& r) { r.setContextPhaseParams(ContextPhaseParams({1}, 2)); }),
              HasSubstr("contextPhaseParams"));
  EXPECT_THAT(refused([](Request& r) { r.setEncoderInputTokenIds({1}); }), HasSubstr("encoderInputTokenIds"));
  EXPECT_THAT(refused([](Request& r) { r.setEncoderOutputLength(1); }), HasSubstr("encoderOutputLength"));
  EXPECT_THAT(refused([](Request& r) { r.setCrossAttentionMask(Tensor::cpu<bool>({1})); }),
              HasSubstr("crossAttentionMask"));
  EXPECT_THAT(refused([](Request& r) { r.setKvCacheRetentionConfig(KvCacheRetentionConfig({Range(0, 2, 90)})); }),
              HasSubstr("kvCacheRetentionConfig"));
  EXPECT_THAT(refused([](Request& r) { r.setOutputConfig(OutputConfig(false, false, false, false, true)); }),
              HasSubstr("returnEncoderOutput"));
  Request usual = plain({1, 2}, 2);
  usual.setKvCacheRetentionConfig(KvCacheRetentionConfig());
  EXPECT_FALSE(answer(executor, usual).hasError());
  EXPECT_THAT(errorOf([&] { Executor("a", "b", ModelType::kENCODER_DECODER, ExecutorConfig()); }),
              HasSubstr("encoder"));
  EXPECT_THAT(errorOf([&] { Executor({}, "{}", {}, "{}", ModelType::kENCODER_DECODER, ExecutorConfig()); }),
              HasSubstr("encoder"));
}

}  // namespace
}  // namespace chorus::executor
