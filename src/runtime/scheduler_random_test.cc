// Random loads under random limits: no budget is ever exceeded (the simulation checks every step), every request
// finishes, and requests that differ only in their arrival start in that order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
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
  bool scores = false;
  int32_t families = 0;  // requests of one family share a prefix
  int32_t clients = 1;
  int64_t work = 0;  // tokens computed if nothing is ever paused
};

Load randomLimits(Random& random, SchedulerLimits& limits) {
  Load load;
  limits.policy = static_cast<CapacitySchedulerPolicy>(random.between(0, 2));
  limits.chunking_policy = static_cast<ContextChunkingPolicy>(random.between(0, 1));
  limits.kv.tokens_per_block = 1 << random.between(0, 4);
  // In long sequences, windows leave most of the blocks behind.
  const bool long_sequences = random.chance(20);
  load.max_seq_len = long_sequences ? random.between(100, 300) : random.between(2, 60);
  if (random.chance(50)) {
    limits.kv.windows.clear();
    for (int32_t group = random.between(1, 4); group > 0; --group) {
      limits.kv.windows.push_back(random.chance(40) ? 0 : random.between(1, long_sequences ? 60 : load.max_seq_len));
    }
  }
  limits.max_batch_size = random.between(1, 8);
  limits.chunked_context = random.chance(70);
  const int32_t least =
      limits.chunked_context ? std::min(limits.kv.tokens_per_block, load.max_seq_len) : load.max_seq_len;
  limits.max_num_tokens = random.between(least, least + 40);
  const int32_t full = limits.kv.mostBlocks(load.max_seq_len, limits.max_num_tokens);
  limits.kv_blocks = random.between(full, random.chance(30) ? full + 2 : 4 * full);
  load.adapters = random.chance(60) ? random.between(1, 6) : 0;
  limits.adapter_budget = {random.between(3, 9), AdapterSize::kUnlimited};
  limits.max_bypasses = random.between(0, 20);
  load.requests = random.between(1, 40);
  load.priorities = random.chance(30);
  load.families = random.chance(60) ? random.between(1, 3) : 0;
  load.clients = random.chance(50) ? random.between(2, 5) : 1;
  limits.turn_steps = random.between(4, 40);
  load.scores = random.chance(40);
  if (load.scores) limits.max_scored_rows = limits.kv.tokens_per_block * random.between(1, 3);
  return load;
}

SimulatedRequest randomRequest(Random& random, const Load& load, int32_t number) {
  SimulatedRequest r;
  r.name = std::to_string(number);
  r.prompt = random.between(1, load.max_seq_len - 1);
  r.new_tokens = random.between(1, load.max_seq_len - r.prompt);
  if (random.chance(30)) r.stop_after = random.between(1, r.new_tokens);
  r.scores = load.scores && random.chance(40);
  if (load.priorities) r.position.priority = static_cast<float>(random.between(0, 2)) / 2;
  if (load.clients > 1) r.client = static_cast<uint64_t>(random.between(1, load.clients));
  if (load.families > 0 && random.chance(80)) {
    r.family = random.between(1, load.families);
    r.common = random.between(1, r.prompt);
  }
  if (load.adapters > 0 && random.chance(70)) {
    // At most two adapters, so that they fit into the smallest budget.
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
  if (random.chance(40)) {
    simulation.skips = [&](const SimulatedRequest& r) { return !r.adapters.empty() && random.chance(50); };
  }
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
  // Requests that never wait for an adapter, for each other's blocks or for rows of logits, and have equal priorities,
  // start in order of arrival.
  if (load.adapters > 0 || load.scores || load.priorities || load.families > 0 || load.clients > 1) return;
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

struct Sharing {
  std::map<uint64_t, int32_t> running, waiting;
};
Sharing sharingOf(const SchedulerSimulation& simulation) {
  Sharing sharing;
  for (const auto& r : simulation.running()) ++sharing.running[*r.client];
  for (const auto& r : simulation.waiting()) ++sharing.waiting[*r.client];
  return sharing;
}

// Only slots are scarce. After each step, no client with waiting requests runs two fewer than another client, no slot
// is free while a request waits, and a waiting client is served within its turn.
TEST(SchedulerRandom, SlotsAreSharedMaxMin) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random{std::mt19937(seed)};
    SchedulerSimulation simulation;
    SchedulerLimits& limits = simulation.limits;
    limits.policy = static_cast<CapacitySchedulerPolicy>(random.between(0, 1));
    limits.max_batch_size = random.between(1, 8);
    limits.max_num_tokens = 64;
    limits.kv.tokens_per_block = 4;
    limits.kv_blocks = 16 * 10;
    limits.turn_steps = 8;
    const int32_t clients = random.between(2, 5);
    std::map<uint64_t, int32_t> unserved;  // steps in which a client waited and ran nothing
    for (int step = 0; step < 150; ++step) {
      for (int32_t n = random.chance(40) ? random.between(1, 4) : 0; n > 0; --n) {
        SimulatedRequest r;
        r.name = fmt::format("r{}_{}", step, n);
        r.prompt = random.between(1, 8);
        r.new_tokens = random.between(1, 30);
        // Client 1 sends most requests.
        r.client = random.chance(60) ? 1 : static_cast<uint64_t>(random.between(1, clients));
        simulation.arrive(r);
      }
      std::string plan;
      ASSERT_NO_THROW(plan = simulation.step());
      const Sharing sharing = sharingOf(simulation);
      int32_t most = 0, all = static_cast<int32_t>(simulation.running().size());
      for (const auto& [_, count] : sharing.running) most = std::max(most, count);
      // Slots of requests that finish in a step are filled in the next step, so the checks skip such steps.
      const bool finished = plan.find("finish=") != std::string::npos;
      for (uint64_t client = 1; client <= static_cast<uint64_t>(clients); ++client) {
        const bool waits = sharing.waiting.contains(client);
        const int32_t own = sharing.running.contains(client) ? sharing.running.at(client) : 0;
        if (waits && !finished) {
          ASSERT_LE(most, own + 1) << "client " << client << " in step " << step;
          ASSERT_EQ(all, limits.max_batch_size) << "a slot is free in step " << step;
        }
        unserved[client] = waits && own == 0 && !finished ? unserved[client] + 1 : 0;
        ASSERT_LE(unserved[client], clients * (limits.turn_steps + 2)) << "client " << client << " starves";
      }
    }
  }
}

// A short context finishes in one step although another client's long contexts compete for the tokens.
TEST(SchedulerRandom, TokensAreSharedMaxMin) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random{std::mt19937(seed)};
    SchedulerSimulation simulation;
    SchedulerLimits& limits = simulation.limits;
    limits.chunking_policy = static_cast<ContextChunkingPolicy>(random.between(0, 1));
    limits.max_batch_size = 8;
    limits.max_num_tokens = 32 + random.between(0, 16);
    limits.kv.tokens_per_block = 4;
    limits.kv_blocks = 2000;
    for (int i = 0; i < 4; ++i) {
      SimulatedRequest r;
      r.name = fmt::format("long{}", i);
      r.prompt = 1000;
      r.client = 1;
      simulation.arrive(r);
    }
    simulation.step();
    SimulatedRequest r;
    r.name = "short";
    r.prompt = random.between(1, 12);
    r.client = 2;
    simulation.arrive(r);
    simulation.step();
    ASSERT_EQ(simulation.finished().size(), 1u);
    ASSERT_EQ(simulation.finished()[0].name, "short");
    int32_t tokens = 0;
    for (const auto& sequence : simulation.plan().sequences) tokens += sequence.num_tokens;
    ASSERT_GT(tokens, limits.max_num_tokens - limits.kv.tokens_per_block) << "tokens are left over";
  }
}

// A request with a large adapter competes with an endless stream of requests whose small adapters are always in use.
// b shares the first blocks of a group with a window with a, and leaves them behind first. That frees nothing, because
// a still reads them.
TEST(SchedulerRandom, ASharedBlockThatAWindowLeavesIsNotFree) {
  SchedulerSimulation simulation;
  simulation.limits.kv = {4, {16}};
  simulation.limits.max_num_tokens = 9;
  simulation.limits.max_batch_size = 4;
  simulation.limits.kv_blocks = 8;  // a single request needs 7
  SimulatedRequest a, b;
  a.name = "a";
  a.prompt = 17;
  a.new_tokens = 40;
  a.family = b.family = 1;
  a.common = b.common = 16;
  b.name = "b";
  b.prompt = 76;
  b.new_tokens = 10;
  simulation.arrive(a);
  for (int i = 0; i < 3; ++i) simulation.step();
  simulation.arrive(b);
  for (int i = 0; !simulation.empty(); ++i) {
    ASSERT_LT(i, 200);
    ASSERT_NO_THROW(simulation.step());
  }
  EXPECT_EQ(simulation.finished().size(), 2);
}

TEST(SchedulerRandom, ALargeAdapterIsNotStarved) {
  SchedulerSimulation simulation;
  simulation.limits.max_batch_size = 4;
  simulation.limits.max_num_tokens = 64;
  simulation.limits.kv.tokens_per_block = 4;
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
