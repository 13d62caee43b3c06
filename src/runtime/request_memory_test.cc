// What requests and their sequences hold in memory for the rules of sampling.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/request.h"
#include "support/malloc_hook.h"

namespace chorus {
namespace {

constexpr int32_t kMaxSeqLen = 1 << 20;

std::unique_ptr<Request> made(const executor::Request& asked) {
  return std::make_unique<Request>(1, asked, nullptr, kMaxSeqLen, makeStrategy);
}

TEST(RequestMemory, AStartTakesMemoryForTheKnownTokensAlone) {
  executor::SamplingConfig sampling;
  sampling.setRepetitionPenalty(1.5f);
  sampling.setNoRepeatNgramSize(3);
  const auto request = made(executor::Request({1, 2, 3}, kMaxSeqLen - 3, false, sampling));
  const test::AllocationWatch watch;
  request->strategy().prepare(*request->sequences().front());
  EXPECT_LT(watch.peakBytes(), 10000);
}

TEST(RequestMemory, CopiesOfARequestShareItsBadWords) {
  executor::Request asked({1, 2, 3}, 100);
  asked.setBadWords(std::list<executor::VecTokens>(256, executor::VecTokens(1024, 7)));
  std::vector<std::unique_ptr<Request>> requests;
  const test::AllocationWatch watch;
  for (int i = 0; i < 64; ++i) {
    const executor::Request copy = asked;
    requests.push_back(made(copy));
    requests.back()->strategy().prepare(*requests.back()->sequences().front());
  }
  EXPECT_LT(watch.peakBytes(), 64 * 10000);
}

}  // namespace
}  // namespace chorus
