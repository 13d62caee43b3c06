// Token masks in the executor: a mask may arrive after the forward pass was launched, and it is applied before
// sampling.
#include <gmock/gmock.h>

#include <algorithm>
#include <future>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using testing::CoreFixture;
using ::testing::ElementsAre;
using testing::expectedTokens;
using testing::fakeLogits;
using testing::Gate;
using testing::hashAdapter;
using ::testing::HasSubstr;

using Words = std::vector<uint64_t>;

Words allowing(const std::vector<int32_t>& tokens) {
  Words words(1, 0);  // the vocabulary has 50 tokens
  for (const int32_t token : tokens) words[0] |= uint64_t{1} << token;
  return words;
}

// Computes masks on another thread.
class ThreadedMasks : public TokenMaskSource {
 public:
  using Compute = std::function<Words(std::vector<int32_t>)>;
  explicit ThreadedMasks(Compute compute) : compute_(std::move(compute)) {}
  void begin(std::span<const int32_t> tokens) override {
    words_ = std::async(std::launch::async, compute_, std::vector<int32_t>(tokens.begin(), tokens.end()));
  }
  TokenMask finish() override {
    mask_ = words_.get();
    return TokenMask(mask_);
  }
  std::unique_ptr<TokenMaskSource> fork() const override { return std::make_unique<ThreadedMasks>(compute_); }

 private:
  Compute compute_;
  std::future<Words> words_;
  Words mask_;
};

class ExecutorMasksTest : public CoreFixture {
 protected:
  // Requests whose prompt begins with 9 have masks.
  ExecutorCore& startWith(ThreadedMasks::Compute compute) {
    options.token_masks = [compute](const executor::Request& asked) -> std::unique_ptr<TokenMaskSource> {
      if (asked.getInputTokenIds().front() != 9) return nullptr;
      return std::make_unique<ThreadedMasks>(compute);
    };
    return start();
  }
};

// The greedy tokens if only those that `allowed` returns for the history may follow.
executor::VecTokens maskedTokens(std::vector<int32_t> history, int count, int32_t vocab,
                                 const std::function<std::vector<int32_t>(const std::vector<int32_t>&)>& allowed) {
  std::vector<float> logits(static_cast<size_t>(vocab));
  executor::VecTokens tokens;
  for (int i = 0; i < count; ++i) {
    fakeLogits(history, hashAdapter(nullptr), logits);
    const auto choices = allowed(history);
    const auto less = [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] < logits[static_cast<size_t>(b)];
    };
    tokens.push_back(*std::max_element(choices.begin(), choices.end(), less));
    history.push_back(tokens.back());
  }
  return tokens;
}

// Every mask is computed only after the network was launched with the step that needs it.
TEST_F(ExecutorMasksTest, ArrivesWhileTheNetworkRuns) {
  std::mutex mutex;
  std::condition_variable changed;
  int launched = 0, computed = 0;
  before_step = [&](int, const StepInput&) {
    std::unique_lock lock(mutex);
    ++launched;
    changed.notify_all();
    changed.wait(lock, [&] { return computed == launched; });
  };
  const auto allowed = [](const std::vector<int32_t>& history) {
    const auto first = static_cast<int32_t>(history.size() % 7);
    return std::vector<int32_t>{first, first + 10, first + 20};
  };
  startWith([&](const std::vector<int32_t>& history) {
    std::unique_lock lock(mutex);
    const int step = computed + 1;
    changed.wait(lock, [&] { return launched == step; });
    ++computed;
    changed.notify_all();
    return allowing(allowed(history));
  });
  EXPECT_EQ(answer(request({9, 4}, 8)), maskedTokens({9, 4}, 8, kVocab, allowed));
  EXPECT_EQ(computed, 8);
}

// Requests with and without masks share steps; one is paused, its context is chunked, and it has an end token.
TEST_F(ExecutorMasksTest, LeavesOtherRequestsAloneAndSurvivesPauses) {
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 18;
  const auto allowed = [](const std::vector<int32_t>& history) {
    return history.size() % 2 == 0 ? std::vector<int32_t>{3, 5, 7, 11} : std::vector<int32_t>{2, 4, 6};
  };
  startWith([&](const std::vector<int32_t>& history) { return allowing(allowed(history)); });
  const executor::VecTokens long_prompt(30, 9);
  std::vector<executor::IdType> masked, plain;
  for (int i = 0; i < 3; ++i) {
    masked.push_back(enqueue(request(long_prompt, 20)));
    plain.push_back(enqueue(request({1, 2, i}, 30)));
  }
  for (const auto id : masked)
    EXPECT_EQ(resultOf(id).outputTokenIds.at(0), maskedTokens(long_prompt, 20, kVocab, allowed));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(resultOf(plain[static_cast<size_t>(i)]).outputTokenIds.at(0), expectedTokens({1, 2, i}, 30, kVocab));
}

// The order is post-processor, rules, mask: none of them brings back a token that another one banned.
TEST_F(ExecutorMasksTest, WorksWithPostProcessorsAndRules) {
  startWith([](const std::vector<int32_t>&) { return allowing({11, 12, 13}); });
  executor::Request r = request({9}, 2);
  r.setLogitsPostProcessor([](executor::IdType, executor::Tensor& logits, const executor::BeamTokens&,
                              const executor::StreamPtr&, std::optional<executor::IdType>) {
    auto* values = static_cast<float*>(logits.getData());
    for (int i = 0; i < kVocab; ++i) values[i] = static_cast<float>(-i);
    values[12] = 100.0f;
  });
  r.setBadWords({{11}});
  EXPECT_THAT(answer(r), ElementsAre(12, 12));
  r.setBadWords({{11}, {12}});
  EXPECT_THAT(answer(r), ElementsAre(13, 13));
  r.setBadWords({{11}, {12}, {13}});
  EXPECT_THAT(errorOf(enqueue(r)), HasSubstr("The token mask, badWords"));
}

TEST_F(ExecutorMasksTest, EachSequenceHasItsOwn) {
  std::mutex mutex;
  int made = 0;
  options.token_masks = [&](const executor::Request&) {
    const std::lock_guard lock(mutex);
    const int32_t only = ++made;
    return std::make_unique<ThreadedMasks>([only](const std::vector<int32_t>&) { return allowing({only}); });
  };
  start();
  executor::Request r = request({9, 9, 9}, 2);
  executor::SamplingConfig sampling;
  sampling.setNumReturnSequences(3);
  r.setSamplingConfig(sampling);
  for (const auto& response : finish(enqueue(r))) {
    const auto& result = response.getResult();
    EXPECT_THAT(result.outputTokenIds.at(0), ElementsAre(result.sequenceIndex + 1, result.sequenceIndex + 1));
  }
}

TEST_F(ExecutorMasksTest, AMaskThatFailsEndsItsRequestOnly) {
  startWith([](const std::vector<int32_t>& history) {
    if (history.size() == 4) throw std::runtime_error("the grammar is broken");
    return allowing({1});
  });
  const auto broken = enqueue(request({9, 1}, 8)), other = enqueue(request({8, 1}, 8));
  EXPECT_THAT(errorOf(broken), HasSubstr("token mask: the grammar is broken"));
  EXPECT_EQ(resultOf(other).outputTokenIds.at(0), expectedTokens({8, 1}, 8, kVocab));
  core->shutdown();
  EXPECT_EQ(core->kvCacheStats().usedNumBlocks, 0);
}

// The network fails while a mask is being computed: finish() is never called.
TEST_F(ExecutorMasksTest, AFailedStepDropsTheMask) {
  before_step = [](int step, const StepInput&) {
    if (step == 1) throw std::runtime_error("the network broke");
  };
  startWith([](const std::vector<int32_t>&) { return allowing({1}); });
  EXPECT_THAT(errorOf(enqueue(request({9, 1}, 8))), HasSubstr("the network broke"));
  EXPECT_THAT(answer(request({9, 1}, 2)), ElementsAre(1, 1));
}

// Reads the tokens as late as the contract allows: when it is destroyed.
class LateReader : public TokenMaskSource {
 public:
  explicit LateReader(std::atomic<int64_t>& sum) : sum_(sum) {}
  ~LateReader() override {
    for (const int32_t token : tokens_) sum_ += token;
  }
  void begin(std::span<const int32_t> tokens) override { tokens_ = tokens; }
  TokenMask finish() override { return {}; }
  std::unique_ptr<TokenMaskSource> fork() const override { return std::make_unique<LateReader>(sum_); }

 private:
  std::atomic<int64_t>& sum_;
  std::span<const int32_t> tokens_;
};

TEST_F(ExecutorMasksTest, TokensOutliveTheSourceThatReadsThem) {
  std::atomic<int64_t> sum = 0;
  options.token_masks = [&](const executor::Request&) { return std::make_unique<LateReader>(sum); };
  before_step = [](int, const StepInput&) { throw std::runtime_error("no power"); };
  start();
  EXPECT_THAT(errorOf(enqueue(request({9, 4, 7}, 8))), HasSubstr("no power"));
  while (sum == 0) std::this_thread::yield();
  EXPECT_EQ(sum, 20);
}

TEST_F(ExecutorMasksTest, AnyExceptionFailsTheRequestAlone) {
  startWith([](const std::vector<int32_t>&) -> Words { throw 7; });  // NOLINT(hicpp-exception-baseclass)
  const auto masked = enqueue(request({9}, 4));
  EXPECT_EQ(answer(request({1, 2}, 4)), expectedTokens({1, 2}, 4, kVocab));
  EXPECT_THAT(errorOf(masked), HasSubstr("unknown exception"));
}

}  // namespace
}  // namespace chorus
