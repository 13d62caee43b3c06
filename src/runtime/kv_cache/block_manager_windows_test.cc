// KV groups with windows: which blocks a sequence holds, and which prefixes can be reused. In the random test, a
// simulated memory shows that each sequence reads through its tables what it or an equal sequence wrote.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "runtime/kv_cache/block_manager.h"

namespace chorus {
namespace {

constexpr uint64_t kNamespace = 1;

std::vector<int32_t> tokensFrom(int32_t first, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Computes tokens [from, tokens.size()) of a slot's sequence in steps of at most `chunk` tokens.
void compute(BlockManager& manager, int32_t slot, std::span<const int32_t> tokens, int32_t from, int32_t chunk) {
  const auto all = static_cast<int32_t>(tokens.size());
  for (int32_t written = from; written < all;) {
    const int32_t end = std::min(all, written + chunk);
    ASSERT_TRUE(manager.extend(slot, all, end));
    written = end;
    manager.commitBlocks(slot, kNamespace, tokens.first(static_cast<size_t>(written)));
    manager.slideWindows(slot, written);
  }
}

TEST(BlockManagerWindows, KeepTheBlocksThatTheNextTokenReads) {
  BlockManager manager({.num_blocks = 32, .tokens_per_block = 4, .num_slots = 2, .max_seq_len = 64, .windows = {0, 6}});
  ASSERT_TRUE(manager.extend(0, 20, 8));
  EXPECT_EQ(manager.table(0, 0).size(), 5) << "a group without a window takes the blocks of the whole context";
  EXPECT_EQ(manager.table(0, 1).size(), 2) << "one with a window takes those of the step";
  manager.slideWindows(0, 8);
  EXPECT_EQ(manager.held(0), 5 + 2) << "the token at 8 reads from 3 on";
  manager.slideWindows(0, 9);
  EXPECT_EQ(manager.held(0), 5 + 1);
  EXPECT_EQ(manager.usedBlocks(), 6);
  ASSERT_TRUE(manager.extend(0, 20, 20));
  EXPECT_EQ(manager.table(0, 1)[0], -1);
  EXPECT_EQ(manager.held(0), 5 + 4);
  manager.slideWindows(0, 20);
  EXPECT_EQ(manager.held(0), 5 + 2);
  manager.release(0);
  EXPECT_EQ(manager.usedBlocks(), 0);
}

TEST(BlockManagerWindows, AModelWithWindowsRunsLongSequencesInFewBlocks) {
  BlockManager manager({.num_blocks = 4, .tokens_per_block = 4, .num_slots = 1, .max_seq_len = 4000, .windows = {8}});
  const auto tokens = tokensFrom(0, 4000);
  ASSERT_NO_FATAL_FAILURE(compute(manager, 0, tokens, 0, 5));
  EXPECT_EQ(manager.held(0), 2);
}

TEST(BlockManagerWindows, APrefixIsReusedIfItsWindowIsCached) {
  BlockManager manager({.num_blocks = 24, .tokens_per_block = 4, .num_slots = 2, .max_seq_len = 64, .windows = {0, 8}});
  const auto tokens = tokensFrom(0, 40);
  ASSERT_NO_FATAL_FAILURE(compute(manager, 0, tokens, 0, 4));
  EXPECT_EQ(manager.cachedBlocks(), 8) << "the window has left these";
  // Everything is still cached.
  PrefixMatch match = manager.match(kNamespace, tokens, 40);
  EXPECT_EQ(match.blocks, 10);
  EXPECT_EQ(match.held, 10);
  EXPECT_EQ(match.cached, 0) << "the first sequence uses all of them";
  match = manager.match(kNamespace, tokens, 20);
  EXPECT_EQ(match.blocks, 5);
  const int32_t free = manager.freeBlocks();
  manager.reuse(1, kNamespace, tokens, 5);
  EXPECT_EQ(manager.held(1), 5 + 2) << "of the group with a window, blocks 3 and 4";
  EXPECT_EQ(manager.heldLasting(1), 5);
  EXPECT_EQ(manager.lastingBlocks(), 10) << "both sequences share them";
  EXPECT_EQ(manager.freeBlocks(), free - 2);
  manager.release(1);
  // Another sequence takes the empty blocks, and then those that the window left, the oldest first.
  ASSERT_TRUE(manager.extend(1, 36, 4));
  EXPECT_EQ(manager.match(kNamespace, tokens, 20).blocks, 5);
  ASSERT_TRUE(manager.extend(1, 36, 8));
  manager.release(1);
  EXPECT_EQ(manager.match(kNamespace, tokens, 40).blocks, 10) << "its end can be reused as before";
  EXPECT_LT(manager.match(kNamespace, tokens, 39).blocks, 9);
}

TEST(BlockManagerWindows, AnEvictedPrefixFreesTheBlocksOfAllGroups) {
  BlockManager manager({.num_blocks = 6, .tokens_per_block = 4, .num_slots = 1, .max_seq_len = 12, .windows = {0, 64}});
  ASSERT_NO_FATAL_FAILURE(compute(manager, 0, tokensFrom(0, 12), 0, 12));
  manager.release(0);
  EXPECT_EQ(manager.cachedBlocks(), 6);
  ASSERT_TRUE(manager.extend(0, 4, 0));
  EXPECT_EQ(manager.usedBlocks(), 1);
  EXPECT_EQ(manager.cachedBlocks(), 4) << "without the last block of one group, that of the other one is of no use";
}

// A number for each namespace, prefix and group, as a stand-in for keys and values.
class Memory {
 public:
  Memory(int32_t blocks, int32_t width) : width_(width), cells_(static_cast<size_t>(blocks * width)) {}
  int64_t valueOf(uint64_t cache_namespace, int32_t group, std::span<const int32_t> prefix) {
    const auto key = std::tuple(cache_namespace, group, std::vector<int32_t>(prefix.begin(), prefix.end()));
    return values_.try_emplace(key, std::ssize(values_) + 1).first->second;
  }
  int64_t& at(std::span<const int32_t> table, int32_t position) {
    const int32_t block = table[static_cast<size_t>(position / width_)];
    return cells_.at(static_cast<size_t>(block) * static_cast<size_t>(width_) + static_cast<size_t>(position % width_));
  }

 private:
  int32_t width_;
  std::map<std::tuple<uint64_t, int32_t, std::vector<int32_t>>, int64_t> values_;
  std::vector<int64_t> cells_;
};

class Simulation {
 public:
  explicit Simulation(unsigned seed)
      : random_(seed),
        demand_{1 + pick(4), windows()},
        // Too few for all slots at their longest.
        num_blocks_(3 * demand_.numGroups() * demand_.blocksFor(kMaxSeqLen)),
        manager_({.num_blocks = num_blocks_,
                  .tokens_per_block = demand_.tokens_per_block,
                  .num_slots = kSlots,
                  .max_seq_len = kMaxSeqLen,
                  .windows = demand_.windows,
                  .hash_mask = pick(2) == 0 ? ~uint64_t{0} : uint64_t{1}},
                 {&cache_namespaces_, &scopes_}),
        memory_(num_blocks_, demand_.tokens_per_block) {
    for (const char* name : {"a", "b"}) cache_namespaces_.acquire(name);
    for (int32_t i = 0; i < kScopes; ++i) scopes_.acquire(std::to_string(i));
  }

  void step() {
    const int32_t slot = pick(kSlots);
    Sequence& s = sequences_[static_cast<size_t>(slot)];
    manager_.setTime(time_ += pick(50) == 0 ? EvictionOrder::kRest : 0);
    if (s.tokens.empty())
      pick(4) == 0 ? fork(slot, s) : begin(slot, s);
    else if (pick(6) == 0)
      release(slot, s);
    else
      compute(slot, s);
    check();
  }

  void end() {
    for (int32_t slot = 0; slot < kSlots; ++slot) release(slot, sequences_[static_cast<size_t>(slot)]);
    check();
    ASSERT_EQ(manager_.usedBlocks(), 0) << "blocks leak";
    // New blocks evict everything that is cached, and with it the last references to namespaces and scopes.
    std::vector<int32_t> taken;
    for (int32_t slot = 0; manager_.cachedBlocks() > 0; ++slot) {
      ASSERT_LT(slot, kSlots);
      int32_t length = kMaxSeqLen;
      while (!manager_.extend(slot, length)) ASSERT_GT(--length, 0);
    }
    for (int32_t slot = 0; slot < kSlots; ++slot) manager_.release(slot);
    for (uint64_t i = 1; i <= 2; ++i) cache_namespaces_.release(i);
    for (uint64_t i = 1; i <= kScopes; ++i) scopes_.release(i);
    ASSERT_EQ(cache_namespaces_.size(), 0) << "a prefix without blocks is left";
    ASSERT_EQ(scopes_.size(), 0);
  }

  int64_t reused = 0, slid = 0, copies = 0;

 private:
  struct Sequence {
    uint64_t cache_namespace = 0;
    std::vector<int32_t> tokens;
    int32_t written = 0;
  };
  static constexpr int32_t kSlots = 6, kMaxSeqLen = 40, kScopes = 3;

  int32_t pick(int32_t below) { return static_cast<int32_t>(random_() % static_cast<unsigned>(below)); }
  std::vector<int32_t> windows() {
    std::vector<int32_t> windows(static_cast<size_t>(1 + pick(3)));
    for (int32_t& window : windows) window = pick(3) == 0 ? 0 : 1 + pick(16);
    return windows;
  }

  void begin(int32_t slot, Sequence& s) {
    s.cache_namespace = 1 + static_cast<uint64_t>(pick(2));
    const auto scope = 1 + static_cast<uint64_t>(pick(kScopes));
    manager_.prepare(scope);
    manager_.occupy(slot, scope);
    // Tokens of two kinds, so that many prompts begin alike.
    for (int32_t count = 1 + pick(kMaxSeqLen - 1); count > 0; --count) s.tokens.push_back(pick(10) == 0);
    const auto length = static_cast<int32_t>(s.tokens.size());
    const PrefixMatch match = manager_.match(s.cache_namespace, s.tokens, length - 1);
    const int32_t lasting = manager_.lastingBlocks();
    manager_.reuse(slot, s.cache_namespace, s.tokens, match.blocks);
    ASSERT_EQ(manager_.heldLasting(slot), match.held);
    ASSERT_EQ(manager_.lastingBlocks() - lasting, match.cached);
    s.written = match.blocks * demand_.tokens_per_block;
    reused += manager_.held(slot);
  }

  void fork(int32_t slot, Sequence& s) {
    const int32_t parent = pick(kSlots);
    if (sequences_[static_cast<size_t>(parent)].tokens.empty()) return;
    s = sequences_[static_cast<size_t>(parent)];
    s.tokens.resize(static_cast<size_t>(s.written));
    const auto scope = 1 + static_cast<uint64_t>(pick(kScopes));
    manager_.prepare(scope);
    manager_.occupy(slot, scope);
    const int32_t free = manager_.freeBlocks();
    manager_.fork(parent, slot, s.written);
    ASSERT_EQ(manager_.freeBlocks(), free);
  }

  void compute(int32_t slot, Sequence& s) {
    if (std::ssize(s.tokens) == s.written) {
      if (s.written == kMaxSeqLen) return release(slot, s);
      s.tokens.push_back(pick(10) == 0);
    }
    const auto all = static_cast<int32_t>(s.tokens.size());
    const int32_t end = s.written + 1 + pick(all - s.written);
    // The copies come on top of the new blocks.
    const bool inside = s.written % demand_.tokens_per_block != 0;
    const int32_t shared = inside ? manager_.numShared(slot, s.written) : 0;
    if (manager_.freeBlocks() < shared) return release(slot, s);
    if (shared > 0) {
      std::vector<BlockCopy> made;
      manager_.copyOnWrite(slot, s.written, made);
      ASSERT_EQ(std::ssize(made), shared);
      for (const BlockCopy& copy : made) {
        for (int32_t i = 0; i < demand_.tokens_per_block; ++i)
          memory_.at({&copy.to, 1}, i) = memory_.at({&copy.from, 1}, i);
      }
      copies += shared;
    }
    if (!manager_.extend(slot, all, end)) return release(slot, s);
    for (int32_t group = 0; group < demand_.numGroups(); ++group) {
      for (int32_t position = s.written; position < end; ++position) {
        memory_.at(manager_.table(slot, group), position) = valueAt(s, group, position);
      }
    }
    const int32_t step = end - s.written;
    s.written = end;
    const int32_t held = manager_.held(slot);
    ASSERT_LE(held, demand_.mostBlocks(all, step));
    manager_.commitBlocks(slot, s.cache_namespace, std::span(s.tokens).first(static_cast<size_t>(end)));
    manager_.slideWindows(slot, end);
    slid += held - manager_.held(slot);
  }

  void release(int32_t slot, Sequence& s) {
    manager_.release(slot);
    s = Sequence();
  }

  int64_t valueAt(const Sequence& s, int32_t group, int32_t position) {
    return memory_.valueOf(s.cache_namespace, group, std::span(s.tokens).first(static_cast<size_t>(position) + 1));
  }

  void check() {
    std::map<int32_t, int32_t> references;
    std::set<int32_t> lasting;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const Sequence& s = sequences_[static_cast<size_t>(slot)];
      int32_t held = 0;
      for (int32_t group = 0; group < demand_.numGroups(); ++group) {
        for (const int32_t block : manager_.table(slot, group)) {
          if (block < 0) continue;
          ++references[block];
          if (demand_.windows[static_cast<size_t>(group)] == 0) lasting.insert(block);
          ++held;
        }
        const int32_t window = demand_.windows[static_cast<size_t>(group)];
        for (int32_t p = window == 0 ? 0 : std::max(0, s.written - window + 1); p < s.written; ++p) {
          ASSERT_EQ(memory_.at(manager_.table(slot, group), p), valueAt(s, group, p))
              << "slot " << slot << ", group " << group << ", position " << p;
        }
      }
      ASSERT_EQ(manager_.held(slot), held);
    }
    ASSERT_EQ(manager_.usedBlocks(), static_cast<int32_t>(references.size()));
    ASSERT_EQ(manager_.lastingBlocks(), static_cast<int32_t>(lasting.size()));
    for (const auto& [block, count] : references) ASSERT_EQ(manager_.references(block), count);
  }

  std::mt19937 random_;
  KvDemand demand_;
  int32_t num_blocks_;
  SharedNumbers cache_namespaces_, scopes_;
  BlockManager manager_;
  Memory memory_;
  std::vector<Sequence> sequences_{kSlots};
  int64_t time_ = 0;
};

TEST(BlockManagerWindows, RandomSequencesReadWhatTheyWrote) {
  int64_t reused = 0, slid = 0, copies = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Simulation simulation(seed);
    for (int i = 0; i < 800; ++i) {
      simulation.step();
      if (::testing::Test::HasFatalFailure()) return;
    }
    simulation.end();
    if (::testing::Test::HasFatalFailure()) return;
    reused += simulation.reused;
    slid += simulation.slid;
    copies += simulation.copies;
  }
  EXPECT_GT(reused, 2000);
  EXPECT_GT(slid, 2000);
  EXPECT_GT(copies, 200);
}

}  // namespace
}  // namespace chorus
