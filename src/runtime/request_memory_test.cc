// Bounds on the memory of a request and its sequences: for the rules by which tokens are chosen, and for answers.
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
    const auto copy = std::make_unique<executor::Request>(asked);
    requests.push_back(made(*copy));
    requests.back()->strategy().prepare(*requests.back()->sequences().front());
  }
  EXPECT_LT(watch.peakBytes(), 64 * 10000);
}

TEST(RequestMemory, AStreamKeepsNoLogProbabilitiesThatWereSent) {
  constexpr int kTokens = 2000;
  executor::OutputConfig output;
  output.returnLogProbs = true;
  output.topLogProbs = 20;
  const SampleOutput sample{.token = 7, .log_prob = -1.0f, .top = std::vector<executor::TokenLogProb>(20)};
  for (const bool all_again : {false, true}) {
    executor::Request asked({1, 2, 3}, kMaxSeqLen - 3, true, executor::SamplingConfig(), output);
    asked.setReturnAllGeneratedTokens(all_again);
    const auto request = made(asked);
    Sequence& sequence = *request->sequences().front();
    Answer& answer = request->answerOf(sequence);
    const test::AllocationWatch watch;
    for (int i = 0; i < kTokens; ++i) {
      sequence.append(sample.token);
      answer.keepToken(sequence, sample, Answer::Clock::now());
      if (all_again && i + 1 < kTokens) continue;  // the last response of them all is enough
      const executor::Result result = answer.next(sequence, executor::FinishReason::kNOT_FINISHED);
      ASSERT_EQ(result.logProbs->front().size(), all_again ? kTokens : 1U);
      ASSERT_EQ(result.topLogProbs->front().size(), all_again ? kTokens : 1U);
      ASSERT_FLOAT_EQ(result.cumLogProbs->front(), static_cast<float>(-1 - i));
    }
    if (all_again) continue;
    EXPECT_LT(watch.heldBytes(), 32 << 10) << "the tokens themselves, and one list";
  }
}

}  // namespace
}  // namespace chorus
