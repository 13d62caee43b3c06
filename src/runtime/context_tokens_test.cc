#include "runtime/context_tokens.h"

#include <gtest/gtest.h>

#include <vector>

namespace chorus {
namespace {

// Shares `tokens` between the contexts. Returns the tokens of each.
std::vector<int32_t> share(const SchedulerLimits& limits, int32_t tokens, const std::vector<RequestView>& requests) {
  std::vector<PlannedSequence> contexts;
  std::vector<ContextLane> lanes;
  for (size_t i = 0; i < requests.size(); ++i) contexts.push_back({static_cast<int32_t>(i), 0, true, false});
  shareContextTokens(limits, {}, requests, tokens, contexts, lanes);
  std::vector<int32_t> given;
  for (const PlannedSequence& context : contexts) given.push_back(context.num_tokens);
  return given;
}

RequestView context(uint64_t client, int32_t max_chunk, int32_t cached = 0) {
  RequestView r;
  r.num_tokens = 300;
  r.num_cached = cached;
  r.client = client;
  r.max_chunk = max_chunk;
  return r;
}

constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

TEST(ContextTokens, AChunkIsNoLongerThanItsLimit) {
  using executor::ContextChunkingPolicy;
  SchedulerLimits limits{.max_batch_size = 8, .max_num_tokens = 1000, .kv = {.tokens_per_block = 16}};
  for (const auto policy : {ContextChunkingPolicy::kFIRST_COME_FIRST_SERVED, ContextChunkingPolicy::kEQUAL_PROGRESS}) {
    limits.chunking_policy = policy;
    for (const uint64_t other : {1, 2}) {
      const std::vector<RequestView> requests = {context(1, 50), context(1, 5), context(1, 5, 296),
                                                 context(other, kNoLimit), context(other, 40, 8)};
      EXPECT_EQ(share(limits, 1000, requests), (std::vector<int32_t>{48, 5, 4, 300, 40}));
      EXPECT_EQ(share(limits, 8, {context(1, 5, 3), context(other, 5, 30), context(other, 5)}),
                (std::vector<int32_t>{5, 2, 0}))
          << "the last one would need five";
    }
  }
  limits.chunked_context = false;
  EXPECT_EQ(share(limits, 1000, {context(1, 50)}), std::vector<int32_t>{300});
}

}  // namespace
}  // namespace chorus
