// Several clients of one executor: fairness and isolation between them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::KvReuseScope;
using executor::Request;
using executor::VecTokens;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::fakeSource;
using testing::Gate;

class ExecutorClientsTest : public CoreFixture {
 protected:
  static Request of(uint64_t client, VecTokens prompt, int32_t max_tokens) {
    Request r = request(std::move(prompt), max_tokens);
    r.setClientId(client);
    return r;
  }
  // Runs a request, checks its answer and returns how many context tokens were computed.
  int32_t computed(const Request& r, const std::string& adapter = "") {
    core->takeStats();
    EXPECT_EQ(answer(r), expectedTokens(r.getInputTokenIds(), r.getMaxTokens(), kVocab, adapter));
    int32_t tokens = 0;
    for (const auto& step : core->takeStats()) tokens += step.numCtxTokens;
    return tokens;
  }
  static VecTokens prompt(int32_t first, int32_t length = 18) {
    VecTokens tokens(static_cast<size_t>(length));
    for (int32_t i = 0; i < length; ++i) tokens[static_cast<size_t>(i)] = (first * 7 + i * i) % kVocab;
    return tokens;
  }
};

// A client sends a request of a thousand sequences, which would run for 64,000 steps; another sends short requests,
// three at once and then one after the other.
TEST_F(ExecutorClientsTest, AThousandSequencesOfOneClientDoNotHoldUpAnother) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  start();
  Request attack = of(1, {1}, 60);
  executor::SamplingConfig sampling;
  sampling.setNumReturnSequences(1000);
  attack.setSamplingConfig(sampling);
  const auto attacker = enqueue(attack);
  gate.awaitArrivals(1);
  std::vector<executor::IdType> neighbours;
  for (int32_t i = 0; i < 3; ++i) neighbours.push_back(enqueue(of(2, {2 + i}, 4)));
  gate.open();
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(resultOf(neighbours[static_cast<size_t>(i)]).outputTokenIds.at(0), expectedTokens({2 + i}, 4, kVocab));
  }
  for (int32_t i = 0; i < 20; ++i) {
    const auto result = resultOf(enqueue(of(2, {2 + i}, 4)));
    EXPECT_EQ(result.outputTokenIds.at(0), expectedTokens({2 + i}, 4, kVocab));
    EXPECT_EQ(result.decodingIter, 4) << "it was paused";
  }
  core->cancel(attacker);
  for (const auto& response : finish(attacker)) {
    const auto& got = response.getResult().outputTokenIds.at(0);
    const auto expected = expectedTokens({1}, 60, kVocab);
    ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
  }
}

// A new client's request starts in the first step after its arrival, although another client holds all slots.
TEST_F(ExecutorClientsTest, ANewcomerStartsInTheNextStep) {
  Gate gate;
  gate.close();
  holdStep(5, gate);
  start();
  std::vector<executor::IdType> long_ones;
  for (int32_t i = 0; i < 12; ++i) long_ones.push_back(enqueue(of(1, {1, i}, 60)));
  gate.awaitArrivals(1);
  Request newcomer = of(2, {9}, 3);
  executor::OutputConfig output;
  output.returnPerfMetrics = true;
  newcomer.setOutputConfig(output);
  const auto id = enqueue(newcomer);
  gate.open();
  const auto metrics = resultOf(id).requestPerfMetrics.value();
  EXPECT_LE(metrics.firstIter, 7u);
  for (int32_t i = 0; i < 12; ++i) {
    EXPECT_EQ(resultOf(long_ones[static_cast<size_t>(i)]).outputTokenIds.at(0), expectedTokens({1, i}, 60, kVocab));
  }
}

// Admitting a sequence takes time, in which no step runs.
TEST_F(ExecutorClientsTest, ARoundAdmitsAFewSequencesOfEachClient) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  start();
  enqueue(of(1, {1}, 3));
  gate.awaitArrivals(1);
  const auto many = core->enqueue(std::vector<Request>(200, of(1, {2}, 3)), nullptr);
  for (size_t i = 150; i < many.size(); ++i) core->cancel(many[i]);
  const auto neighbour = enqueue(of(2, {3}, 3));
  gate.open();
  EXPECT_EQ(resultOf(neighbour).outputTokenIds.at(0), expectedTokens({3}, 3, kVocab));
  for (size_t i = 0; i < many.size(); ++i) {
    const auto result = resultOf(many[i]);
    const auto reason = i < 150 ? executor::FinishReason::kLENGTH : executor::FinishReason::kCANCELLED;
    EXPECT_EQ(result.finishReasons.at(0), reason) << i;
  }
  const auto steps = core->takeStats();
  constexpr int32_t kAdmitted = 64;
  int32_t before = 0;
  for (const auto& step : steps) {
    EXPECT_LE(step.numQueuedRequests, before + kAdmitted) << step.iter;
    before = step.numQueuedRequests;
  }
}

// Ending a sequence takes time as well. Two clients have a thousand choices in the queue, which all end between two
// steps of client 1. So does a request of client 4.
TEST_F(ExecutorClientsTest, ARoundEndsAFewSequencesOfEachClient) {
  enum class Cause { kCancel, kTime, kAdapter };
  struct Run {
    Cause cause;
    int choices;
    std::chrono::milliseconds time{200};  // allotted to each, if that is the cause
  };
  std::deque<Run> runs;
  for (const auto cause : {Cause::kCancel, Cause::kTime, Cause::kAdapter}) {
    for (const int choices : {1, 512}) runs.push_back({cause, choices});
  }
  for (; !runs.empty(); runs.pop_front()) {
    const auto [cause, choices, time] = runs.front();
    SCOPED_TRACE(fmt::format("cause {}, {} choices", static_cast<int>(cause), choices));
    constexpr int kHeld = 20;  // by then all are in the queue
    Gate first, held, loading;
    for (Gate* gate : {&first, &held, &loading}) gate->close();
    std::atomic<int> latest = 0;
    before_step = [&](int step, const StepInput&) {
      latest = step;
      if (step == 0) first.pass();
      if (step == kHeld) held.pass();
    };
    breakLoad("broken", loading, "broken");
    options.scheduler.max_batch_size = 1;
    options.scheduler.turn_steps = 1000;
    start();
    core->registerAdapter(1, fakeSource("broken"));
    const auto running = enqueue(of(1, {1}, 50));
    first.awaitArrivals(1);
    std::atomic<bool> given_up{false};
    std::mutex mutex;
    std::map<executor::IdType, std::vector<int>> ended;  // request: the latest step at each of its responses
    const auto callback = [&](const executor::Response& response) {
      const std::lock_guard lock(mutex);
      ended[response.getRequestId()].push_back(latest);
      if (given_up) return;
      EXPECT_EQ(response.hasError(), cause == Cause::kAdapter);
      if (!response.hasError()) {
        EXPECT_TRUE(response.getResult().outputTokenIds.at(0).empty());
      }
    };
    const auto add = [&](uint64_t client, int count) {
      Request r = of(client, {2, 3}, 5);
      executor::SamplingConfig sampling;
      sampling.setNumReturnSequences(count == 1 ? 1 : choices);
      r.setSamplingConfig(sampling);
      if (cause == Cause::kTime) r.setAllottedTimeMs(time);
      if (cause == Cause::kAdapter) r.setLoraConfig(executor::LoraConfig(1));
      return core->enqueue(std::vector<Request>(static_cast<size_t>(count == 1 ? 1 : count / choices), r), callback);
    };
    const auto begin = std::chrono::steady_clock::now();
    auto ids = add(2, 512);
    const auto others = add(3, 512), last = add(4, 1);
    ids.insert(ids.end(), others.begin(), others.end());
    ids.push_back(last.front());
    first.open();
    held.awaitArrivals(1);
    if (cause == Cause::kTime && std::chrono::steady_clock::now() - begin >= time) {
      // On this machine some may have ended before all were in the queue.
      runs.push_back({cause, choices, 4 * time});
      given_up = true;
      loading.open();
      held.open();
      core->shutdown();
      continue;
    }
    if (cause == Cause::kCancel) {
      for (const auto id : ids) core->cancel(id);
    }
    if (cause == Cause::kTime) std::this_thread::sleep_for(time + std::chrono::milliseconds(50));
    loading.open();
    held.open();
    EXPECT_EQ(resultOf(running).outputTokenIds.at(0), expectedTokens({1}, 50, kVocab));
    const auto missing = [&] {
      const std::lock_guard lock(mutex);
      return ids.size() - ended.size();
    };
    // The adapter may fail in any step, and after the last one.
    while (cause == Cause::kAdapter && missing() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    core->shutdown();
    EXPECT_EQ(missing(), 0u);
    std::map<int, int> by_step;
    for (const auto& [id, steps] : ended) {
      const bool one_answer = cause == Cause::kAdapter || id == last.front();
      EXPECT_EQ(steps.size(), one_answer ? 1u : static_cast<size_t>(choices));
      for (const int step : steps) ++by_step[step];
    }
    if (cause == Cause::kAdapter) continue;
    for (const auto& [step, count] : by_step) EXPECT_LE(count, 64) << "after step " << step;
    EXPECT_EQ(by_step.size(), 1025u / 64 + 1);
    ASSERT_FALSE(ended[last.front()].empty());
    EXPECT_EQ(ended[last.front()].front(), by_step.begin()->first) << "it does not wait for the many";
  }
}

// A waiting request that ends early still names the content of its adapter, if that was loaded.
TEST_F(ExecutorClientsTest, AnEndBeforeTheStartNamesTheAdaptersContent) {
  Gate gate;
  gate.close();
  holdStep(3, gate);
  options.scheduler.max_batch_size = 1;
  start();
  core->registerAdapter(1, fakeSource("red"));
  const auto withAdapter = [](int32_t token) {
    Request r = request({token}, 10);
    r.setLoraConfig(executor::LoraConfig(1));
    return r;
  };
  // In one call, so that both are admitted before the first step.
  const auto ids = core->enqueue(std::vector<Request>{withAdapter(1), withAdapter(2)}, nullptr);
  const auto running = ids[0], waiting = ids[1];
  gate.awaitArrivals(1);
  core->cancel(waiting);
  gate.open();
  const auto ended = resultOf(waiting);
  EXPECT_EQ(ended.finishReasons.at(0), executor::FinishReason::kCANCELLED);
  EXPECT_EQ(ended.adapterContentHash, "red");
  EXPECT_EQ(resultOf(running).adapterContentHash, "red");
}

TEST_F(ExecutorClientsTest, WhatWaitsToBeAdmittedIsAnsweredAtShutdown) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  start();
  const auto first = enqueue(of(1, {1}, 3));
  gate.awaitArrivals(1);
  const auto many = core->enqueue(std::vector<Request>(200, of(1, {2}, 3)), nullptr);
  std::thread stopper([this] { core->shutdown(); });
  while (core->acceptsRequests()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gate.open();
  stopper.join();
  for (const auto id : many) EXPECT_EQ(resultOf(id).finishReasons.at(0), executor::FinishReason::kCANCELLED);
  finish(first);
}

TEST_F(ExecutorClientsTest, AClientFillsNoMoreOfTheQueueThanItLeaves) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  options.scheduler.max_batch_size = 1;
  options.max_queue_size = 9;
  start();
  enqueue(of(1, {1}, 2));
  gate.awaitArrivals(1);
  const auto fill = [&](uint64_t client) {
    int count = 0;
    try {
      for (; count < 100; ++count) enqueue(of(client, {1}, 2));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kExhausted);
    }
    return count;
  };
  EXPECT_EQ(fill(1), 4);
  EXPECT_EQ(fill(2), 2);
  EXPECT_EQ(fill(3), 1);
  EXPECT_TRUE(core->acceptsRequests());
  std::vector<Request> several(2, of(4, {1}, 2));
  EXPECT_THROW(core->enqueue(several, nullptr), Error);
  EXPECT_EQ(fill(4), 1) << "a refused call leaves nothing behind";
  gate.open();
}

TEST_F(ExecutorClientsTest, WithoutAnIdTheQueueAloneIsTheLimit) {
  Gate gate;
  gate.close();
  holdStep(0, gate);
  options.scheduler.max_batch_size = 1;
  options.max_queue_size = 5;
  start();
  enqueue(request({1}, 2));
  gate.awaitArrivals(1);
  for (int i = 0; i < 5; ++i) enqueue(request({1}, 2));
  EXPECT_FALSE(core->acceptsRequests());
  EXPECT_THROW(enqueue(request({1}, 2)), Error);
  gate.open();
}

TEST_F(ExecutorClientsTest, SaltsShareNothing) {
  start();
  const auto salted = [&](std::optional<uint64_t> salt) {
    Request r = of(1, prompt(1), 2);
    r.setCacheSaltID(salt);
    return r;
  };
  EXPECT_EQ(computed(salted(5)), 18);
  EXPECT_EQ(computed(salted(5)), 2);
  EXPECT_EQ(computed(salted(6)), 18);
  EXPECT_EQ(computed(salted(std::nullopt)), 18);
  EXPECT_EQ(computed(salted(0)), 18) << "an id of 0 is a salt too";
}

// A request must not wait for a block that it may not reuse: the delay would reveal another client's prompt.
TEST_F(ExecutorClientsTest, NobodyWaitsForABlockThatItMayNotTake) {
  for (const bool same : {true, false}) {
    Gate gate;
    gate.close();
    holdStep(0, gate);
    start();
    const auto first = enqueue(request({1}, 1));
    gate.awaitArrivals(1);
    std::vector<executor::IdType> ids;
    for (uint64_t salt = 1; salt <= 2; ++salt) {
      Request r = of(1, prompt(1, 9), 2);
      r.setCacheSaltID(same ? 1 : salt);
      ids.push_back(enqueue(r));
    }
    gate.open();
    resultOf(first);
    for (const auto id : ids) resultOf(id);
    int32_t tokens = 0;
    for (const auto& step : core->takeStats()) tokens += step.numCtxTokens;
    EXPECT_EQ(tokens, same ? 1 + 9 + 1 : 1 + 9 + 9);
  }
}

TEST_F(ExecutorClientsTest, ScopesSayWhoSharesWithWhom) {
  for (const auto scope : {KvReuseScope::kALL, KvReuseScope::kADAPTER, KvReuseScope::kCLIENT}) {
    SCOPED_TRACE(static_cast<int>(scope));
    options.reuse_scope = scope;
    start();
    core->registerAdapter(1, fakeSource("red"));
    EXPECT_EQ(computed(of(1, prompt(1), 2)), 18);
    EXPECT_EQ(computed(of(1, prompt(1), 2)), 2);
    EXPECT_EQ(computed(of(2, prompt(1), 2)), scope == KvReuseScope::kALL ? 2 : 18);
    const auto adapted = [](uint64_t client) {
      Request r = of(client, prompt(1), 2);
      r.setLoraConfig(executor::LoraConfig(1));
      return r;
    };
    EXPECT_EQ(computed(adapted(1), "red"), 18);
    EXPECT_EQ(computed(adapted(1), "red"), 2);
    EXPECT_EQ(computed(adapted(2), "red"), scope == KvReuseScope::kCLIENT ? 18 : 2);
  }
}

// A flood of salts, compositions or prompts must not evict the cached blocks of others, nor blocks that were reused.
TEST_F(ExecutorClientsTest, AFloodOfContentsLeavesOthersTheirs) {
  setAdapterRoom(100);
  start();
  core->registerAdapter(1, fakeSource("red"));
  core->registerAdapter(2, fakeSource("blue"));
  Request neighbour = of(1, prompt(1), 2);
  Request adapted = of(1, prompt(2), 2);
  adapted.setLoraConfig(executor::LoraConfig(2));
  Request salted = of(1, prompt(3), 2);
  salted.setCacheSaltID(77);
  const auto all = [&] {
    return std::vector<int32_t>{computed(neighbour), computed(adapted, "blue"), computed(salted)};
  };
  all();
  EXPECT_EQ(all(), (std::vector<int32_t>{2, 2, 2}));
  for (uint64_t i = 0; i < 300; ++i) {
    Request r = of(1, prompt(static_cast<int32_t>(i), 24), 1);
    r.setCacheSaltID(1000 + i);
    answer(r);
  }
  EXPECT_EQ(all(), (std::vector<int32_t>{2, 2, 2})) << "after salts";
  for (uint64_t i = 0; i < 5000; ++i) {
    Request r = of(1, prompt(static_cast<int32_t>(i), i % 40 == 0 ? 24 : 1), 1);
    r.setLoraComposition({{1, 1.0f + static_cast<float>(i) / 1000.0f}, {2, 0.5f}});
    answer(r);
  }
  EXPECT_EQ(all(), (std::vector<int32_t>{2, 2, 2})) << "after compositions";
  for (int32_t i = 0; i < 300; ++i) answer(of(2, prompt(i, 24), 1));
  EXPECT_EQ(all(), (std::vector<int32_t>{2, 2, 2})) << "after another client's prompts";
}

}  // namespace
}  // namespace chorus
