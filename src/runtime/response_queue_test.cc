// Waiting for responses: timeouts, and destruction of the queue meanwhile.
#include "runtime/response_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <numeric>
#include <thread>

#include "base/testing/eventually.h"

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;
using executor::IdType;
using executor::Response;
using std::chrono::milliseconds;

std::vector<Response> errorOf(IdType id) { return {Response(id, "it failed")}; }

void push(ResponseQueue& queue, IdType id, bool final) {
  executor::Result result;
  result.isFinal = final;
  std::vector<Response> responses = {Response(id, result)};
  queue.push(responses);
}

TEST(ResponseQueue, EveryFormOfAnInfiniteTimeoutWaits) {
  ResponseQueue queue;
  for (const auto timeout : {milliseconds::max(), milliseconds(std::chrono::hours(24 * 365 * 200))}) {
    queue.open(7);
    auto waiting = std::async(std::launch::async, [&] { return queue.awaitOne(7, timeout); });
    EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
    auto responses = errorOf(7);
    queue.push(responses);
    ASSERT_EQ(waiting.get().size(), 1u);
  }
}

TEST(ResponseQueue, ATimeoutBelowZeroDoesNotWait) {
  ResponseQueue queue;
  queue.open(7);
  EXPECT_TRUE(queue.awaitAny(milliseconds(-1)).empty());
  EXPECT_TRUE(queue.awaitOne(7, milliseconds::min()).empty());
  EXPECT_EQ(queue.awaitEach({7, 7}, milliseconds::min()).size(), 2u);
}

TEST(ResponseQueue, DestructionWaitsForThreadsThatWait) {
  for (int round = 0; round < 200; ++round) {
    auto queue = std::make_unique<ResponseQueue>();
    queue->open(1);
    queue->open(2);
    std::vector<std::thread> threads;
    threads.emplace_back([q = queue.get()] { EXPECT_TRUE(q->awaitAny(std::nullopt).empty()); });
    threads.emplace_back([q = queue.get()] { EXPECT_TRUE(q->awaitOne(1, std::nullopt).empty()); });
    threads.emplace_back([q = queue.get()] { EXPECT_EQ(q->awaitEach({1, 2}, std::nullopt).size(), 2u); });
    while (queue->numWaiting() < 3) std::this_thread::yield();
    queue.reset();
    for (auto& thread : threads) thread.join();
  }
}

const std::string kGone = "ReqId 3 has already been processed and was terminated.";

TEST(ResponseQueue, SeveralIdsShareOneTimeout) {
  ResponseQueue queue;
  std::vector<IdType> ids(1000);
  std::iota(ids.begin(), ids.end(), IdType{1});
  for (const IdType id : ids) queue.open(id);
  push(queue, ids.back(), false);
  const auto begin = Clock::now();
  const auto all = queue.awaitEach(ids, milliseconds(300));
  const auto took = Clock::now() - begin;
  ASSERT_EQ(all.size(), ids.size());
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_TRUE(all[i].empty()) << i;
  EXPECT_EQ(all.back().size(), 1u) << "what is there is had though the time is over";
  EXPECT_GE(took, milliseconds(300));
  EXPECT_LT(took, kPatience) << "not the time-out of each";
}

TEST(ResponseQueue, ATimeoutOfZeroTakesTheResponsesThatAreThere) {
  ResponseQueue queue;
  queue.open(3);
  EXPECT_TRUE(queue.awaitOne(3, milliseconds(0)).empty());
  EXPECT_TRUE(queue.awaitAny(milliseconds(0)).empty());
  push(queue, 3, false);
  push(queue, 3, false);
  queue.open(4);
  push(queue, 4, true);
  EXPECT_EQ(queue.numReady(std::nullopt), 3);
  EXPECT_EQ(queue.numReady(3), 2);
  EXPECT_EQ(queue.numReady(4), 1);
  EXPECT_EQ(queue.numReady(5), 0);
  EXPECT_EQ(queue.awaitOne(3, milliseconds(0)).size(), 2u);
  EXPECT_EQ(queue.numReady(3), 0);
}

TEST(ResponseQueue, AnIdEndsWithItsFinalResponse) {
  ResponseQueue queue;
  queue.open(3);
  push(queue, 3, false);
  EXPECT_EQ(queue.awaitOne(3, std::nullopt).size(), 1u);
  push(queue, 3, true);
  EXPECT_EQ(queue.awaitOne(3, std::nullopt).size(), 1u);
  for (const IdType id : {IdType{3}, IdType{4}}) {
    const auto gone = queue.awaitOne(id, std::nullopt);
    ASSERT_EQ(gone.size(), 1u);
    EXPECT_TRUE(gone[0].hasError());
    if (id == 3) {
      EXPECT_EQ(gone[0].getErrorMsg(), kGone);
    }
  }
  push(queue, 3, true);
  EXPECT_EQ(queue.numReady(std::nullopt), 0) << "nobody asks for it any more";
}

TEST(ResponseQueue, ClosingWakesThreadsThatWait) {
  ResponseQueue queue;
  queue.open(3);
  std::vector<Response> one, any;
  std::thread waits([&] { one = queue.awaitOne(3, 10 * kPatience); });
  std::thread also([&] { any = queue.awaitAny(10 * kPatience); });
  const auto begin = Clock::now();
  queue.close();
  waits.join();
  also.join();
  EXPECT_LT(Clock::now() - begin, kPatience);
  EXPECT_TRUE(one.empty());
  EXPECT_TRUE(any.empty());
}

}  // namespace
}  // namespace chorus
