// The executor when allocations fail: every request is answered, nothing leaks, and later requests get correct answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/testing/core_fixture.h"
#include "support/malloc_hook.h"

namespace chorus {
namespace {

using executor::Request;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::fakeSource;

class ExecutorMemoryTest : public CoreFixture {
 protected:
  // Result of a request, whose enqueueing may fail too.
  struct Outcome {
    bool refused = false;
    std::vector<executor::Response> responses;
  };
};

// Clients that register and remove adapters again and again must not fill the memory.
TEST_F(ExecutorMemoryTest, AnUnregisteredTaskLeavesNothing) {
  start();
  constexpr uint64_t kTasks = 500;
  const auto registerAndUnregister = [&](uint64_t first) {
    for (uint64_t id = first; id < first + kTasks; ++id) {
      core->registerAdapter(id, fakeSource("a"));
      core->unregisterAdapter(id);
    }
    // The second answer comes after the round of the last change.
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(core->adapterStates().empty());
  };
  registerAndUnregister(0);
  const test::AllocationWatch watch;
  constexpr uint64_t kRounds = 40;
  for (uint64_t round = 1; round <= kRounds; ++round) registerAndUnregister(round * kTasks);
  // The inbox keeps memory for the commands of a round.
  EXPECT_LT(watch.heldBytes(), static_cast<int64_t>(kRounds * kTasks * 30)) << "bytes after 20,000 tasks";
}

TEST_F(ExecutorMemoryTest, EveryRequestIsAnsweredWhicheverAllocationFails) {
  if (!test::FailingAllocations::supported()) return;
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 20;
  options.iter_stats_max = 10;
  start();
  for (uint64_t id = 1; id <= 2; ++id) core->registerAdapter(id, fakeSource(fmt::format("a{}", id)));
  executor::SamplingConfig sampling;
  sampling.setNoRepeatNgramSize(20);
  sampling.setRepetitionPenalty(1.0f);
  {
    // Initialises OpenSSL, which does not survive an allocation failure there. A server has hashed its engine by then.
    Request composed = request({1}, 1);
    composed.setLoraComposition({{1, 0.5f}});
    answer(composed);
  }
  int answered = 0, failed = 0, refused = 0;
  for (const uint64_t every : {3001u, 997u, 97u, 31u, 13u, 7u}) {
    for (uint64_t skip = 0; skip < 12; ++skip) {
      SCOPED_TRACE(fmt::format("every {}th allocation after {} fails", every, skip));
      std::vector<executor::IdType> ids;
      ids.reserve(8);
      std::vector<std::vector<executor::Response>> responses;
      {
        const test::FailingAllocations failing(every, skip);
        for (int i = 0; i < 8; ++i) {
          Request r = [&] {
            const test::ExemptFromFailure exempt;
            Request made = request({1 + i % 3, 2, 3, 4, 5}, 12, i % 2 == 0);
            made.setSamplingConfig(sampling);
            made.setClientId(static_cast<uint64_t>(i % 3));
            if (i % 4 == 1) made.setLoraConfig(executor::LoraConfig(1));
            if (i % 4 == 2) made.setLoraComposition({{1, 0.5f}, {2, 0.25f}});
            return made;
          }();
          try {
            ids.push_back(enqueue(r));
          } catch (const std::bad_alloc&) {
            ++refused;
          }
        }
        const test::ExemptFromFailure exempt;
        for (const auto id : ids) responses.push_back(finish(id));
      }
      for (const auto& of_one : responses) {
        ASSERT_FALSE(of_one.empty());
        ++answered;
        failed += of_one.back().hasError() ? 1 : 0;
      }
      // Afterwards a request without failures gets the correct answer.
      ASSERT_EQ(answer(request({7, 8, 9}, 5)), expectedTokens({7, 8, 9}, 5, kVocab));
    }
  }
  core->shutdown();
  EXPECT_EQ(core->kvCacheStats().usedNumBlocks, 0) << "blocks leak";
  EXPECT_EQ(core->adapterCacheStats().host.pinnedAdapters, 0) << "adapters leak";
  EXPECT_EQ(core->adapterCacheStats().device.pinnedAdapters, 0);
  EXPECT_GT(answered, 100);
  EXPECT_GT(refused, 0) << "no failure came through to the caller";
  EXPECT_GT(failed, 0) << "no failure came through";
  EXPECT_LT(failed, answered) << "no request survived";
}

}  // namespace
}  // namespace chorus
