// Random loads under random limits through the executor's loop: every answer is the one that the request gets alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::CapacitySchedulerPolicy;
using executor::ContextChunkingPolicy;
using testing::CoreFixture;
using testing::expectedTokens;
using testing::fakeSource;

class ExecutorRandomTest : public CoreFixture {};

TEST_F(ExecutorRandomTest, EveryAnswerIsTheSoloAnswer) {
  int64_t reused = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    auto& scheduler = options.scheduler;
    scheduler.policy = static_cast<CapacitySchedulerPolicy>(pick(0, 2));
    scheduler.chunking_policy = static_cast<ContextChunkingPolicy>(pick(0, 1));
    scheduler.chunked_context = pick(0, 3) != 0;
    scheduler.kv.tokens_per_block = 1 << pick(0, 4);
    scheduler.max_batch_size = pick(1, 16);
    scheduler.max_num_tokens = pick(scheduler.chunked_context ? 16 : 40, 60);
    // Half of the models have KV groups with windows.
    scheduler.kv.windows = {0};
    if (pick(0, 1) == 0) scheduler.kv.windows = {pick(0, 20), pick(1, 20), pick(1, 40)};
    const bool reads_all = std::ranges::find(scheduler.kv.windows, 0) != scheduler.kv.windows.end();
    const int32_t window = reads_all ? 0 : std::ranges::max(scheduler.kv.windows);
    scheduler.kv_blocks = scheduler.kv.mostBlocks(64, scheduler.max_num_tokens) * pick(1, 4);
    const int host_room = pick(2, 6);
    setAdapterRoom(host_room, pick(2, host_room));
    scheduler.max_bypasses = pick(0, 10);
    options.block_reuse = pick(0, 3) != 0;
    start();
    constexpr int kAdapters = 5;
    for (int i = 0; i < kAdapters; ++i) {
      core->registerAdapter(static_cast<uint64_t>(i), fakeSource(fmt::format("a{}-{}", i, 1 + i % 2)));
    }
    struct Asked {
      executor::IdType id;
      executor::VecTokens expected;
      bool cancelled;
    };
    std::vector<Asked> asked;
    for (int i = 0; i < 40; ++i) {
      executor::VecTokens prompt(static_cast<size_t>(pick(1, 40)));
      // Half of the prompts share a prefix with others.
      const int family = pick(0, 3);
      const size_t common = family < 2 ? random() % prompt.size() : 0;
      for (size_t t = 0; t < prompt.size(); ++t) prompt[t] = t < common ? family : pick(0, kVocab - 1);
      const int count = pick(1, 64 - static_cast<int>(prompt.size()));
      auto r = request(prompt, count);
      std::string adapter;
      if (pick(0, 2) != 0) {
        const int id = pick(0, kAdapters - 1);
        adapter = fmt::format("a{}-{}", id, 1 + id % 2);
        r.setLoraConfig(executor::LoraConfig(static_cast<uint64_t>(id)));
      }
      r.setPriority(static_cast<float>(pick(0, 2)) / 2);
      const auto id = enqueue(r);
      asked.push_back({id, expectedTokens(prompt, count, kVocab, adapter, window), pick(0, 9) == 0});
      if (asked.back().cancelled) core->cancel(id);
      if (pick(0, 4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(pick(1, 300)));
    }
    for (const auto& one : asked) {
      const auto result = resultOf(one.id);
      if (result.outputTokenIds.empty()) return;
      const auto& got = result.outputTokenIds.at(0);
      if (one.cancelled) {
        ASSERT_LE(got.size(), one.expected.size());
        ASSERT_TRUE(std::equal(got.begin(), got.end(), one.expected.begin())) << "request " << one.id;
      } else {
        ASSERT_EQ(got, one.expected) << "request " << one.id;
      }
    }
    core->shutdown();
    const auto stats = core->takeStats();
    for (const auto& step : stats) {
      ASSERT_LE(step.numContextRequests + step.numGenRequests, scheduler.max_batch_size);
      ASSERT_LE(step.numCtxTokens + step.numGenRequests, scheduler.max_num_tokens);
      const auto& kv = step.kvCacheStats.value();
      ASSERT_EQ(kv.usedNumBlocks + kv.freeNumBlocks, kv.maxNumBlocks);
      ASSERT_LE(kv.cachedNumBlocks, kv.freeNumBlocks);
    }
    const auto kv = core->kvCacheStats();
    ASSERT_EQ(kv.usedNumBlocks, 0) << "blocks leak";
    ASSERT_EQ(kv.allocTotalBlocks, kv.allocNewBlocks + kv.reusedBlocks);
    reused += kv.reusedBlocks;
  }
  EXPECT_GT(reused, 200) << "hardly any blocks were shared";
}

// The requests have registered adapters or adapters sent as tensors, and one or several sequences. Each gets an answer,
// and no resources are held afterwards.
TEST_F(ExecutorRandomTest, AThousandRequestsCancelledAtAnyMoment) {
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  options.scheduler.max_batch_size = 6;
  options.scheduler.policy = CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.adapter_row_bytes = [](int64_t, int64_t width, bool) { return width; };
  setAdapterRoom(7);
  start();
  for (uint64_t id = 0; id < 5; ++id) core->registerAdapter(id, fakeSource(fmt::format("a{}-{}", id, 1 + id % 2)));
  struct Asked {
    executor::IdType id;
    executor::VecTokens expected;
    int sequences;
  };
  std::vector<Asked> asked;
  for (int i = 0; i < 1000; ++i) {
    const executor::VecTokens prompt(static_cast<size_t>(pick(1, 20)), pick(0, 5));
    const int count = pick(1, 30);
    auto r = request(prompt, count);
    const int kind = pick(0, 3);
    std::string adapter;
    if (kind == 1) {
      const int id = pick(0, 4);
      adapter = fmt::format("a{}-{}", id, 1 + id % 2);
      r.setLoraConfig(executor::LoraConfig(static_cast<uint64_t>(id)));
    } else if (kind == 2) {
      const int32_t number = pick(0, 9), rows[] = {1, 0, 2};
      adapter = fmt::format("tensors{}", number);
      using executor::Tensor;
      r.setLoraConfig(executor::LoraConfig(static_cast<uint64_t>(10 + number % 5),
                                           Tensor::copyOf(executor::DataType::kINT32, &number, {1, 1}),
                                           Tensor::copyOf(executor::DataType::kINT32, rows, {1, 3})));
    }
    const int sequences = pick(0, 4) == 0 ? pick(2, 4) : 1;
    executor::SamplingConfig sampling;
    sampling.setNumReturnSequences(sequences);
    r.setSamplingConfig(sampling);
    r.setPriority(static_cast<float>(pick(0, 2)) / 2);
    asked.push_back({enqueue(r), expectedTokens(prompt, count, kVocab, adapter), sequences});
    if (pick(0, 1) == 0) core->cancel(asked[static_cast<size_t>(pick(0, i))].id);
    if (pick(0, 9) == 0) std::this_thread::sleep_for(std::chrono::microseconds(pick(1, 200)));
  }
  for (const auto& one : asked) core->cancel(one.id);
  for (const auto& one : asked) {
    const auto responses = finish(one.id);
    ASSERT_EQ(responses.size(), static_cast<size_t>(one.sequences));
    for (const auto& response : responses) {
      ASSERT_FALSE(response.hasError()) << response.getErrorMsg();
      const auto& got = response.getResult().outputTokenIds.at(0);
      ASSERT_LE(got.size(), one.expected.size());
      ASSERT_TRUE(std::equal(got.begin(), got.end(), one.expected.begin())) << "request " << one.id;
    }
  }
  // Loads of requests that were cancelled end later; an adapter that loads counts as pinned.
  EXPECT_TRUE(eventually([&] { return core->adapterCacheStats().host.pinnedAdapters == 0; }));
  core->shutdown();
  EXPECT_EQ(core->kvCacheStats().usedNumBlocks, 0);
  EXPECT_EQ(core->adapterCacheStats().host.pinnedAdapters, 0);
  EXPECT_EQ(core->adapterCacheStats().device.pinnedAdapters, 0);
}

// Sampled tokens depend only on seed and position, so a request gives the same answer in any batch.
TEST_F(ExecutorRandomTest, SampledAnswersDoNotDependOnMates) {
  const auto sampled = [](uint64_t seed) {
    auto r = request({1, 2, 3}, 30);
    executor::SamplingConfig config;
    config.setTemperature(1.5f);
    config.setTopP(0.95f);
    config.setSeed(seed);
    r.setSamplingConfig(config);
    return r;
  };
  start();
  const auto alone = resultOf(enqueue(sampled(5))).outputTokenIds.at(0);
  options.scheduler.policy = CapacitySchedulerPolicy::kMAX_UTILIZATION;
  options.scheduler.kv_blocks = 17;
  start();
  std::vector<executor::IdType> ids;
  for (uint64_t seed = 0; seed < 12; ++seed) ids.push_back(enqueue(sampled(seed)));
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto tokens = resultOf(ids[seed]).outputTokenIds.at(0);
    if (seed == 5) {
      EXPECT_EQ(tokens, alone);
    } else {
      EXPECT_NE(tokens, alone);
    }
  }
}

}  // namespace
}  // namespace chorus
