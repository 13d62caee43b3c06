// A strategy that forks and drops its request's sequences, through the executor's loop.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::VecTokens;
using testing::CoreFixture;
using ::testing::ElementsAre;
using testing::expectedTokens;
using testing::fakeLogits;
using testing::fakeSource;
using testing::hashAdapter;

constexpr int32_t kFirstFork = 2, kSecondFork = 6, kDropped = 9;

// Begins with one sequence, which takes the likeliest tokens. After kFirstFork and after kSecondFork generated tokens
// it forks another sequence, which continues with the second likeliest token and then with the likeliest ones. The
// sequence forked first is dropped after kDropped generated tokens. A request for four sequences forks only once.
class Forking : public DecodingStrategy {
 public:
  inline static std::atomic<int32_t> most_rows = 0;  // that a step offered

  explicit Forking(const StrategyInput& input) : forks_twice_(input.count == 3) {
    sequences_.push_back(
        std::make_unique<Sequence>(input.owner, 0, input.first, input.asked.getInputTokenIds(), input.max_tokens));
  }
  void prepare(const Sequence&) override {}
  void forget(const Sequence&) noexcept override {}
  int32_t numRows(const Sequence&) const override { return 3; }
  void addInputs(const Sequence& sequence, const LogitsRows& rows, std::vector<SampleInput>& inputs) override {
    if (sequence.generates()) {
      EXPECT_EQ(rows.rows, 1);
    }
    most_rows = std::max(most_rows.load(), rows.rows);
    SampleInput input;
    input.params = &greedy_;
    input.want_log_prob = true;
    input.top_log_probs = 2;
    for (int32_t row = 0; row < rows.rows; ++row) {
      input.logits = rows.row(row);
      inputs.push_back(input);
    }
  }
  void advance(std::span<const SampledSequence> sampled, Clock::time_point now, SequenceChanges& changes) override {
    for (const auto& [sequence, outputs] : sampled) {
      const int32_t generated = sequence->numGenerated();
      if (sequence->index == 1 && generated == kDropped) {
        changes.dropped.push_back(sequence);
        continue;
      }
      if (sequence->index == 0 && (generated == kFirstFork || (forks_twice_ && generated == kSecondFork))) {
        Sequence& child = fork(*sequence, generated == kFirstFork ? 1 : 2);
        changes.forked.push_back(&child);
        extend(child, outputs.back(), outputs.back().top.at(1).token, now, changes);
      }
      extend(*sequence, outputs.back(), outputs.back().token, now, changes);
    }
  }

 private:
  static void extend(Sequence& sequence, const SampleOutput& output, int32_t token, Clock::time_point now,
                     SequenceChanges& changes) {
    Answer& answer = sequence.request.answerOf(sequence);
    sequence.append(token);
    answer.keepToken(sequence, output, now);
    if (sequence.numTokens() == sequence.maxTokens()) answer.finish(executor::FinishReason::kLENGTH);
    changes.advanced.push_back(&sequence);
  }
  bool forks_twice_;
  SamplingParams greedy_;
};

class ExecutorStrategiesTest : public CoreFixture {
 protected:
  static constexpr int32_t kTokens = 14;

  ExecutorStrategiesTest() {
    options.make_strategy = [](const StrategyInput& input) -> std::unique_ptr<DecodingStrategy> {
      if (input.count >= 3) return std::make_unique<Forking>(input);
      return makeStrategy(input);
    };
  }
  static executor::Request forking(VecTokens prompt, int32_t sequences = 3) {
    executor::Request r = request(std::move(prompt), kTokens);
    executor::SamplingConfig sampling;
    sampling.setNumReturnSequences(sequences);
    r.setSamplingConfig(sampling);
    return r;
  }
  // The generated tokens of a sequence that left the greedy one after `forked` tokens.
  static VecTokens branch(const VecTokens& prompt, int32_t forked, const std::string& adapter) {
    const PreparedAdapter parts{.content_hash = adapter};
    const VecTokens trunk = expectedTokens(prompt, forked, kVocab, adapter);
    VecTokens tokens = prompt;
    tokens.insert(tokens.end(), trunk.begin(), trunk.end());
    std::vector<float> logits(kVocab);
    fakeLogits(tokens, hashAdapter(adapter.empty() ? nullptr : &parts), logits);
    std::vector<int32_t> order(kVocab);
    for (int32_t i = 0; i < kVocab; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    tokens.push_back(order[1]);
    const VecTokens rest = expectedTokens(tokens, kTokens - forked - 1, kVocab, adapter);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return {tokens.begin() + static_cast<ptrdiff_t>(prompt.size()), tokens.end()};
  }
  void expectForks(executor::IdType id, const VecTokens& prompt, const std::string& adapter = "") {
    std::map<int32_t, VecTokens> answers;
    for (const auto& response : finish(id)) {
      ASSERT_FALSE(response.hasError()) << response.getErrorMsg();
      const auto& result = response.getResult();
      EXPECT_TRUE(result.isSequenceFinal);
      // The dropped sequence answers only if it is the last one.
      if (result.sequenceIndex == 1) {
        EXPECT_TRUE(result.isFinal);
        continue;
      }
      answers[result.sequenceIndex] = result.outputTokenIds.at(0);
    }
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers.at(0), expectedTokens(prompt, kTokens, kVocab, adapter));
    EXPECT_EQ(answers.at(2), branch(prompt, kSecondFork, adapter));
  }
  void expectNothingHeld() {
    core->shutdown();
    EXPECT_EQ(core->kvCacheStats().usedNumBlocks, 0);
    EXPECT_EQ(core->adapterCacheStats().host.pinnedAdapters, 0);
    EXPECT_EQ(core->adapterCacheStats().device.pinnedAdapters, 0);
  }
};

TEST_F(ExecutorStrategiesTest, ForksContinueAndShareBlocks) {
  const VecTokens prompt = {4, 8, 15, 16, 23, 42, 7};
  for (const bool reuse : {true, false}) {
    options.block_reuse = reuse;
    Forking::most_rows = 0;
    start();
    expectForks(enqueue(forking(prompt)), prompt);
    int32_t context = 0;
    for (const auto& step : core->takeStats()) context += step.numCtxTokens;
    // Each fork computes at most the tokens of its last block again.
    EXPECT_LE(context, static_cast<int32_t>(prompt.size()) + 2 * options.scheduler.kv.tokens_per_block);
    EXPECT_EQ(Forking::most_rows, 3);
    expectNothingHeld();
  }
}

TEST_F(ExecutorStrategiesTest, ForksWaitForASlotAndSurvivePauses) {
  options.scheduler.policy = executor::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 16;
  options.max_queue_size = 52;
  for (const int32_t batch : {1, 2, 6}) {
    options.scheduler.max_batch_size = batch;
    start();
    core->registerAdapter(3, fakeSource("red"));
    const VecTokens first = {1, 2, 3, 4, 5}, second = {9, 9, 9};
    std::vector<executor::IdType> plain;
    executor::Request adapted = forking(second);
    adapted.setLoraConfig(executor::LoraConfig(3));
    const auto base = enqueue(forking(first)), with_adapter = enqueue(adapted);
    for (int i = 0; i < 4; ++i) plain.push_back(enqueue(request({i, 7}, 40)));
    expectForks(base, first);
    expectForks(with_adapter, second, "red");
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(resultOf(plain[static_cast<size_t>(i)]).outputTokenIds.at(0), expectedTokens({i, 7}, 40, kVocab));
    // No place of the queue is left behind.
    std::vector<executor::IdType> later;
    for (int i = 0; i < 50; ++i) later.push_back(enqueue(request({1}, 1)));
    for (const auto id : later) resultOf(id);
    expectNothingHeld();
  }
}

// With one slot, the fork runs after its trunk has ended.
TEST_F(ExecutorStrategiesTest, ARequestEndsWhenItsLastSequenceIsDropped) {
  options.scheduler.max_batch_size = 1;
  start();
  const auto responses = finish(enqueue(forking({3, 1}, 4)));
  ASSERT_EQ(responses.size(), 2u);
  const auto &trunk = responses[0].getResult(), &dropped = responses[1].getResult();
  EXPECT_FALSE(trunk.isFinal);
  EXPECT_EQ(trunk.outputTokenIds.at(0), expectedTokens({3, 1}, kTokens, kVocab));
  EXPECT_TRUE(dropped.isFinal);
  EXPECT_EQ(dropped.sequenceIndex, 1);
  EXPECT_THAT(dropped.finishReasons, ElementsAre(executor::FinishReason::kCANCELLED));
  expectNothingHeld();
}

TEST_F(ExecutorStrategiesTest, CancellingEndsForksToo) {
  before_step = [this](int step, const StepInput&) {
    if (step == kFirstFork + 3) core->cancel(1);
  };
  start();
  size_t responses = 0;
  for (const auto& response : finish(enqueue(forking({3, 1})))) {
    EXPECT_THAT(response.getResult().finishReasons, ElementsAre(executor::FinishReason::kCANCELLED));
    ++responses;
  }
  EXPECT_EQ(responses, 2u);
  expectNothingHeld();
}

}  // namespace
}  // namespace chorus
