// Requests that wait for a block of a running context that is skipped.
#include <gtest/gtest.h>

#include <array>

#include "runtime/scheduler.h"

namespace chorus {
namespace {

TEST(SchedulerSkipped, OnlyCostlyRequestsOfItsClientWaitForTheBlockOfASkippedContext) {
  const SchedulerLimits limits{
      .max_batch_size = 4, .max_num_tokens = 64, .kv = {.tokens_per_block = 16}, .kv_blocks = 40};
  for (const bool skipped : {false, true}) {
    std::array<RequestView, 3> requests;
    for (RequestView& r : requests) {
      r.num_tokens = 100;
      r.final_cached = 110;
      r.next_block = 5;
    }
    requests[0].running = true;
    requests[0].skipped = skipped;
    requests[0].blocks_held = 7;
    requests[0].client = requests[1].client = 1;
    requests[1].costly = true;
    requests[2].client = 2;
    requests[1].can_reuse_next = requests[2].can_reuse_next = true;
    SchedulerPlan plan;
    schedule(limits, {.free_blocks = 30}, requests, plan);
    EXPECT_EQ(plan.started, skipped ? std::vector<int32_t>{2} : std::vector<int32_t>()) << skipped;
    requests[1].costly = false;
    schedule(limits, {.free_blocks = 30}, requests, plan);
    EXPECT_EQ(plan.started, skipped ? std::vector<int32_t>{1} : std::vector<int32_t>()) << "request 2 waits for 1";
  }
}

}  // namespace
}  // namespace chorus
