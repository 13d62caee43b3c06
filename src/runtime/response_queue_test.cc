// Waiting for responses: how long, and when the queue goes away meanwhile.
#include "runtime/response_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

namespace chorus {
namespace {

using executor::Response;
using std::chrono::milliseconds;

std::vector<Response> errorOf(executor::IdType id) { return {Response(id, "it failed")}; }

TEST(ResponseQueue, WaitsForeverHoweverForeverIsSaid) {
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

TEST(ResponseQueue, ATimeThatHasPassedIsNoWait) {
  ResponseQueue queue;
  queue.open(7);
  EXPECT_TRUE(queue.awaitAny(milliseconds(-1)).empty());
  EXPECT_TRUE(queue.awaitOne(7, milliseconds::min()).empty());
  EXPECT_EQ(queue.awaitEach({7, 7}, milliseconds::min()).size(), 2u);
}

TEST(ResponseQueue, GoesAwayAfterThoseWhoWait) {
  for (int round = 0; round < 200; ++round) {
    auto queue = std::make_unique<ResponseQueue>();
    queue->open(1);
    queue->open(2);
    std::promise<void> begins[3];
    std::vector<std::thread> threads;
    threads.emplace_back([&, q = queue.get()] {
      begins[0].set_value();
      EXPECT_TRUE(q->awaitAny(std::nullopt).empty());
    });
    threads.emplace_back([&, q = queue.get()] {
      begins[1].set_value();
      EXPECT_TRUE(q->awaitOne(1, std::nullopt).empty());
    });
    threads.emplace_back([&, q = queue.get()] {
      begins[2].set_value();
      EXPECT_EQ(q->awaitEach({1, 2}, std::nullopt).size(), 2u);
    });
    for (auto& begin : begins) begin.get_future().wait();
    // Between the announcement and the wait they may not be in the queue yet.
    std::this_thread::sleep_for(milliseconds(2));
    queue.reset();
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace chorus
