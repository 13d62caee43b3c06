// Adapter claims of waiting requests: only the front of a long queue claims, and a request's sequences claim together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/testing/adapters_fixture.h"

namespace chorus {
namespace {

using executor::Request;
using testing::AdaptersFixture;
using testing::expectedTokens;
using testing::fakeParts;
using testing::fakeSource;
using testing::Gate;

class ExecutorClaimsTest : public AdaptersFixture {};

TEST_F(ExecutorClaimsTest, ALongQueueAheadIsOnlyAWait) {
  start();
  core->registerAdapter(1, fakeSource("red"));
  std::vector<Request> requests(ExecutorCore::kLookahead + 100, request({1}, 1));
  requests.push_back(withAdapter({2}, 3, 1));
  const auto ids = core->enqueue(requests, nullptr);
  EXPECT_EQ(resultOf(ids.back()).outputTokenIds.at(0), expectedTokens({2}, 3, kVocab, "red"));
}

TEST_F(ExecutorClaimsTest, ALongQueueThatIsCancelledIsOnlyAWait) {
  Gate first_step, later_step;
  first_step.close();
  later_step.close();
  before_step = [&](int step, const StepInput&) {
    if (step == 0) first_step.pass();
    if (step == 3) later_step.pass();
  };
  options.scheduler.max_batch_size = 1;
  start();
  core->registerAdapter(1, fakeSource("red"));
  const auto running = enqueue(request({1}, 60));
  first_step.awaitArrivals(1);
  const auto ids = core->enqueue(std::vector<Request>(ExecutorCore::kLookahead, request({1}, 60)), nullptr);
  const auto last = enqueue(withAdapter({2}, 3, 1));
  first_step.open();
  later_step.awaitArrivals(1);
  for (const auto id : ids) core->cancel(id);
  later_step.open();
  EXPECT_EQ(resultOf(last).outputTokenIds.at(0), expectedTokens({2}, 3, kVocab, "red"));
  resultOf(running);
}

TEST_F(ExecutorClaimsTest, AClientLeavesRoomForOthers) {
  setAdapterRoom(8);
  const auto of_client = [](uint64_t client, int32_t max_tokens, uint64_t task_id) {
    Request r = withAdapter({2}, max_tokens, task_id);
    r.setClientId(client);
    return r;
  };
  std::vector<executor::IdType> ids;
  int steps_of_red = 0;
  before_step = [&](int, const StepInput& input) {
    if (input.adapters.empty() || input.adapters[0].adapter != fakeParts("red-3")->id) return;
    ++steps_of_red;
    if (steps_of_red == 3) ids.push_back(enqueue(of_client(1, 2, 2)));
    if (steps_of_red == 6) ids.push_back(enqueue(of_client(2, 2, 3)));
  };
  for (const bool reject : {false, true}) {
    options.reject_when_full = reject;
    ids.clear();
    steps_of_red = 0;
    start();
    uint64_t id = 0;
    for (const char* name : {"red-3", "blue-3", "green-3", "grey-1"}) core->registerAdapter(++id, fakeSource(name));
    answer(of_client(2, 1, 4));
    EXPECT_EQ(answer(of_client(1, 30, 1)), expectedTokens({2}, 30, kVocab, "red-3"));
    ASSERT_EQ(ids.size(), 2u);
    EXPECT_EQ(resultOf(ids[1]).outputTokenIds.at(0), expectedTokens({2}, 2, kVocab, "green-3"));
    if (reject)
      EXPECT_EQ(errorOf(ids[0]), "PEFT Cache is full. Could not store taskId=2") << "red-3 and green-3 leave no room";
    else
      EXPECT_EQ(resultOf(ids[0]).outputTokenIds.at(0), expectedTokens({2}, 2, kVocab, "blue-3")) << "after red-3";
    Request both = request({2}, 2);
    both.setClientId(1);
    both.setLoraComposition({{1, 1.0f}, {2, 1.0f}});
    EXPECT_EQ(errorOf(enqueue(both)), "PEFT Cache is full. Could not store taskId=1") << "more than half of the cache";
    core->shutdown();
  }
}

// Requests for the adapter in use do not keep their client's request for another one waiting for ever.
TEST_F(ExecutorClaimsTest, AClientsOtherAdapterHasItsTurn) {
  setAdapterRoom(10);
  options.scheduler.max_bypasses = 3;
  const auto of_client = [](uint64_t client, int32_t max_tokens, uint64_t task_id) {
    Request r = withAdapter({2}, max_tokens, task_id);
    r.setClientId(client);
    return r;
  };
  constexpr int kRequests = 40;
  std::atomic<executor::IdType> blue = 0;
  std::atomic<int> before_blue = 0;
  bool red_ran = false, blue_ran = false;
  before_step = [&](int, const StepInput& input) {
    for (const auto& rows : input.adapters) {
      blue_ran = blue_ran || rows.adapter == fakeParts("blue-4")->id;
      red_ran = red_ran || rows.adapter == fakeParts("red-4")->id;
    }
    if (!red_ran || blue_ran || before_blue == kRequests) return;
    if (blue == 0) blue = enqueue(of_client(1, 2, 2));
    enqueue(of_client(1, 3, 1));  // runs when the red ones before it end
    ++before_blue;
  };
  start();
  uint64_t id = 0;
  for (const char* name : {"red-4", "blue-4", "grey-1"}) core->registerAdapter(++id, fakeSource(name));
  answer(of_client(2, 1, 3));
  answer(of_client(1, 3, 1));
  EXPECT_EQ(resultOf(blue).outputTokenIds.at(0), expectedTokens({2}, 2, kVocab, "blue-4"));
  core->shutdown();
  EXPECT_LT(before_blue, kRequests);
}

// A directory may have new content when it is loaded again; all sequences of a request must still use the same content.
TEST_F(ExecutorClaimsTest, SequencesOfARequestRunWithOneContent) {
  Gate gate;
  gate.close();
  before_step = [&](int step, const StepInput&) {
    if (step == 1) gate.pass();
  };
  std::atomic<int> version = 0;
  load = [&](const AdapterSource& source) {
    const std::string name = source.directory.string();
    return fakeParts(name == "changes-3" ? fmt::format("version{}-3", ++version) : name);
  };
  setAdapterRoom(4);
  options.scheduler.max_bypasses = 1;
  start();
  core->registerAdapter(1, fakeSource("changes-3"));
  core->registerAdapter(2, fakeSource("other-2"));
  const auto running = enqueue(withAdapter({1}, 20, 1));
  gate.awaitArrivals(1);
  const auto large = enqueue(withAdapter({2}, 2, 2));
  Request several = withAdapter({3}, 5, 1);
  executor::SamplingConfig sampling;
  sampling.setNumReturnSequences(3);
  several.setSamplingConfig(sampling);
  const auto id = enqueue(several);
  gate.open();
  std::vector<executor::VecTokens> answers;
  for (const auto& response : finish(id)) {
    answers.push_back(response.getResult().outputTokenIds.at(0));
    EXPECT_EQ(response.getResult().adapterContentHash, "version2-3");
    EXPECT_EQ(answers.back(), expectedTokens({3}, 5, kVocab, response.getResult().adapterContentHash));
  }
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[1], answers[0]);
  EXPECT_EQ(answers[2], answers[0]);
  EXPECT_EQ(resultOf(running).outputTokenIds.at(0), expectedTokens({1}, 20, kVocab, "version1-3"));
  EXPECT_EQ(resultOf(large).outputTokenIds.at(0), expectedTokens({2}, 2, kVocab, "other-2"));
}

}  // namespace
}  // namespace chorus
