// Random loads under random limits: no budget is ever exceeded (the simulation checks every step), every
// request finishes, and equals start in the order they came.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/testing/scheduler_simulation.h"

namespace chorus {
namespace {

using executor::CapacitySchedulerPolicy;
using executor::ContextChunkingPolicy;
using testing::SchedulerSimulation;
using testing::SimulatedRequest;

struct Random {
  std::mt19937 engine;
  int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(engine() % static_cast<unsigned>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
};

struct Load {
  int32_t max_seq_len = 0;
  int32_t requests = 0;
  int32_t adapters = 0;
  bool priorities = false;
  int32_t families = 0;  // requests of one begin with the same tokens
  int64_t work = 0;      // tokens computed if nothing is ever paused
};

Load randomLimits(Random& random, SchedulerLimits& limits) {
  Load load;
  limits.policy = static_cast<CapacitySchedulerPolicy>(random.between(0, 2));
  limits.chunking_policy = static_cast<ContextChunkingPolicy>(random.between(0, 1));
  limits.tokens_per_block = 1 << random.between(0, 4);
  load.max_seq_len = random.between(2, 60);
  const int32_t full = (load.max_seq_len + limits.tokens_per_block - 1) / limits.tokens_per_block;
  limits.kv_blocks = random.between(full, 4 * full);
  limits.max_batch_size = random.between(1, 8);
  limits.chunked_context = random.chance(70);
  const int32_t least = limits.chunked_context ? std::min(limits.tokens_per_block, load.max_seq_len) : load.max_seq_len;
  limits.max_num_tokens = random.between(least, least + 40);
  load.adapters = random.chance(60) ? random.between(1, 6) : 0;
  limits.adapter_budget = {random.between(3, 9), AdapterSize::kUnlimited};
  limits.max_bypasses = random.between(0, 20);
  load.requests = random.between(1, 40);
  load.priorities = random.chance(30);
  load.families = random.chance(60) ? random.between(1, 3) : 0;
  return load;
}

SimulatedRequest randomRequest(Random& random, const Load& load, int32_t number) {
  SimulatedRequest r;
  r.name = std::to_string(number);
  r.prompt = random.between(1, load.max_seq_len - 1);
  r.new_tokens = random.between(1, load.max_seq_len - r.prompt);
  if (random.chance(30)) r.stop_after = random.between(1, r.new_tokens);
  if (load.priorities) r.position.priority = static_cast<float>(random.between(0, 2)) / 2;
  if (load.families > 0 && random.chance(80)) {
    r.family = random.between(1, load.families);
    r.common = random.between(1, r.prompt);
  }
  if (load.adapters > 0 && random.chance(70)) {
    // At most two, so that they fit the least budget.
    const auto adapter = static_cast<uint64_t>(random.between(1, load.adapters));
    r.adapters.push_back({adapter, {1 + static_cast<int64_t>(adapter) % 3, 0}});
    const uint64_t other = adapter % static_cast<uint64_t>(load.adapters) + 1;
    const int64_t other_size = 1 + static_cast<int64_t>(other) % 3;
    if (other != adapter && random.chance(30) && r.adapters[0].size.bytes + other_size <= 3) {
      r.adapters.push_back({other, {other_size, 0}});
    }
    r.adapter_ready = random.chance(60);
  }
  return r;
}

void playOne(unsigned seed, int64_t& reused) {
  Random random{std::mt19937(seed)};
  SchedulerSimulation simulation;
  Load load = randomLimits(random, simulation.limits);
  simulation.reuse = random.chance(80);
  const bool burst = random.chance(50);
  int32_t arrived = 0;
  int32_t budget = 100;  // steps, enough for all the work twice over plus recomputation
  while (arrived < load.requests || !simulation.empty()) {
    while (arrived < load.requests && (burst || random.chance(40))) {
      const auto request = randomRequest(random, load, arrived++);
      budget += 4 * (request.prompt + request.new_tokens) * (2 + request.new_tokens);
      simulation.arrive(request);
    }
    if (random.chance(30) || arrived == load.requests) {
      simulation.setAdapterReady(static_cast<uint64_t>(random.between(1, 6)), true);
    }
    ASSERT_NO_THROW(simulation.step());
    ASSERT_LT(simulation.steps(), budget) << "somebody starves";
  }
  ASSERT_EQ(simulation.finished().size(), static_cast<size_t>(load.requests));
  ASSERT_EQ(simulation.blocksHeld(), 0) << "blocks leak";
  for (const auto& request : simulation.finished()) reused += request.reused;
  // Among requests that never wait for an adapter or for each other's blocks, and have one priority, nobody
  // starts before an earlier arrival.
  if (load.adapters > 0 || load.priorities || load.families > 0) return;
  auto finished = simulation.finished();
  std::sort(finished.begin(), finished.end(),
            [](const auto& a, const auto& b) { return a.position.arrival < b.position.arrival; });
  for (size_t i = 1; i < finished.size(); ++i) {
    EXPECT_LE(finished[i - 1].first_step, finished[i].first_step) << "arrival " << i << " was overtaken";
  }
  if (simulation.limits.policy == CapacitySchedulerPolicy::kMAX_UTILIZATION) return;
  for (const auto& request : finished) EXPECT_EQ(request.starts, 1) << "paused under a policy that never does";
}

TEST(SchedulerRandom, BudgetsOrderAndTermination) {
  int64_t reused = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    playOne(seed, reused);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(reused, 10000) << "hardly any blocks were shared";
}

// A large adapter meets an endless stream of small ones whose adapters are always in use.
TEST(SchedulerRandom, ALargeAdapterIsNotStarved) {
  SchedulerSimulation simulation;
  simulation.limits.max_batch_size = 4;
  simulation.limits.max_num_tokens = 64;
  simulation.limits.tokens_per_block = 4;
  simulation.limits.kv_blocks = 64;
  simulation.limits.adapter_budget = {4, AdapterSize::kUnlimited};
  simulation.limits.max_bypasses = 8;
  const auto request = [](std::string name, int32_t new_tokens, uint64_t adapter, int64_t cost) {
    SimulatedRequest r;
    r.name = std::move(name);
    r.prompt = 3;
    r.new_tokens = new_tokens;
    r.adapters = {{adapter, {cost, 0}}};
    return r;
  };
  for (int i = 0; i < 200; ++i) {
    simulation.arrive(request(fmt::format("small{}", i), 5, 1 + static_cast<uint64_t>(i % 3), 1));
    if (i == 4) simulation.arrive(request("large", 3, 9, 4));
    simulation.step();
  }
  const auto& finished = simulation.finished();
  EXPECT_TRUE(std::any_of(finished.begin(), finished.end(), [](const auto& r) { return r.name == "large"; }));
}

}  // namespace
}  // namespace chorus
