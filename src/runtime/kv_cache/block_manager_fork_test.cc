// BlockManager::fork(): a random forest of sequences compared with a plain model in which each sequence owns a list of
// counted blocks. It also checks a simulated memory: through its table each sequence reads what it wrote itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>

#include "runtime/kv_cache/block_manager.h"

namespace chorus {
namespace {

constexpr uint64_t kNamespace = 1;

// The only copy of a model with one KV group.
BlockCopy copyOf(BlockManager& manager, int32_t slot, int32_t position) {
  std::vector<BlockCopy> copies;
  manager.copyOnWrite(slot, position, copies);
  EXPECT_EQ(copies.size(), 1);
  return copies.front();
}

// Two requests of three sequences each. The sequences of a request share all complete blocks of what they have in
// common, and copy the last one only when they write into it.
TEST(BlockManagerFork, TwoRequestsOfThreeSequencesShareTheirBlocks) {
  BlockManager manager({32, 4, 6, 64});
  for (const int32_t parent : {0, 3}) {
    ASSERT_TRUE(manager.extend(parent, 10));
    for (const int32_t child : {parent + 1, parent + 2}) {
      manager.fork(parent, child, 10);
      EXPECT_TRUE(std::ranges::equal(manager.table(child), manager.table(parent)));
    }
  }
  EXPECT_EQ(manager.usedBlocks(), 2 * 3);
  EXPECT_EQ(manager.usedAlone(0), 0);
  for (const int32_t parent : {0, 3}) {
    const int32_t last = manager.table(parent)[2];
    for (const int32_t slot : {parent, parent + 1}) {
      ASSERT_EQ(manager.numShared(slot, 10), 1);
      const BlockCopy copy = copyOf(manager, slot, 10);
      EXPECT_EQ(copy.from, last);
      EXPECT_EQ(copy.to, manager.table(slot)[2]);
      EXPECT_EQ(manager.numShared(slot, 10), 0);
    }
    EXPECT_EQ(manager.numShared(parent + 2, 10), 0) << "the last one writes in place";
    EXPECT_EQ(manager.table(parent + 2)[2], last);
  }
  EXPECT_EQ(manager.usedBlocks(), 2 * (2 + 3));
  for (int32_t slot = 0; slot < 6; ++slot) {
    ASSERT_TRUE(manager.extend(slot, 13));
    manager.release(slot);
  }
  EXPECT_EQ(manager.usedBlocks(), 0);
}

TEST(BlockManagerFork, AtTheEndOfABlockNothingIsCopied) {
  BlockManager manager({8, 4, 2, 32});
  ASSERT_TRUE(manager.extend(0, 8));
  manager.fork(0, 1, 8);
  for (const int32_t slot : {0, 1}) {
    ASSERT_TRUE(manager.extend(slot, 9));
    EXPECT_EQ(manager.numShared(slot, 8), 0);
  }
  EXPECT_EQ(manager.usedBlocks(), 4);
}

// The sequence forks before the end of a block that its parent has completed and committed.
TEST(BlockManagerFork, ACommittedBlockIsNeverOverwritten) {
  BlockManager manager({8, 4, 2, 32});
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(manager.extend(0, 8));
  manager.commitBlocks(0, kNamespace, tokens);
  manager.fork(0, 1, 6);
  manager.release(0);
  EXPECT_EQ(manager.references(manager.table(1)[1]), 1);
  ASSERT_EQ(manager.numShared(1, 6), 1) << "the prefix cache holds the block";
  const BlockCopy copy = copyOf(manager, 1, 6);
  EXPECT_NE(copy.from, copy.to);
  EXPECT_EQ(manager.match(kNamespace, tokens, 8).blocks, 2);
  EXPECT_EQ(manager.cachedBlocks(), 1);
}

// A token stands for the keys and values of all tokens up to it: its value is a number that no other history has.
struct PlainSequence {
  bool used = false;
  std::vector<int32_t> tokens;  // written
  std::vector<std::shared_ptr<int>> blocks;
};

class Forest {
 public:
  // commits: complete blocks enter the prefix cache, from which new sequences take them.
  Forest(unsigned seed, bool commits)
      : random_(seed),
        commits_(commits),
        width_(1 + pick(5)),
        manager_({kBlocks, width_, kSlots, kMaxSeqLen}),
        memory_(static_cast<size_t>(kBlocks * width_), 0),
        sequences_(kSlots) {}

  void step() {
    const int32_t slot = pick(kSlots);
    PlainSequence& s = sequences_[static_cast<size_t>(slot)];
    if (!s.used)
      pick(3) == 0 ? begin(slot, s) : fork(slot, s);
    else if (pick(8) == 0)
      release(slot, s);
    else
      write(slot, s);
    check();
  }

  void end() {
    for (int32_t slot = 0; slot < kSlots; ++slot) release(slot, sequences_[static_cast<size_t>(slot)]);
    ASSERT_EQ(manager_.usedBlocks(), 0) << "blocks leak";
  }

  int32_t forks = 0, copies = 0, in_place = 0, reused = 0;

 private:
  static constexpr int32_t kBlocks = 40, kSlots = 7, kMaxSeqLen = 30;

  int32_t pick(int32_t below) { return static_cast<int32_t>(random_() % static_cast<unsigned>(below)); }
  static int32_t size(const PlainSequence& s) { return static_cast<int32_t>(s.tokens.size()); }
  int32_t& cell(int32_t slot, int32_t position) {
    const int32_t block = manager_.table(slot)[static_cast<size_t>(position / width_)];
    return memory_[static_cast<size_t>(block * width_ + position % width_)];
  }
  // The value that the next token stands for. Equal histories have equal values.
  int32_t next(const PlainSequence& s) {
    const auto history = std::pair(s.tokens, pick(2));
    return values_.try_emplace(history, static_cast<int32_t>(values_.size()) + 1).first->second;
  }

  void begin(int32_t slot, PlainSequence& s) {
    s.used = true;
    if (!commits_) return;
    // The new sequence begins with the tokens of another one, and reuses the blocks of these tokens.
    std::vector<int32_t> prompt = sequences_[static_cast<size_t>(pick(kSlots))].tokens;
    const PrefixMatch match = manager_.match(kNamespace, prompt, static_cast<int32_t>(prompt.size()));
    manager_.reuse(slot, kNamespace, prompt, match.blocks);
    prompt.resize(static_cast<size_t>(match.blocks * width_));
    s.tokens = std::move(prompt);
    reused += match.blocks;
  }

  void fork(int32_t slot, PlainSequence& s) {
    const int32_t from = pick(kSlots);
    const PlainSequence& parent = sequences_[static_cast<size_t>(from)];
    if (!parent.used) return;
    // A strategy that drops its last tokens forks before the end of what is written.
    const int32_t tokens = pick(3) == 0 ? pick(size(parent) + 1) : size(parent);
    s.used = true;
    s.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + tokens);
    const auto blocks = static_cast<ptrdiff_t>(manager_.blocksFor(tokens));
    if (!commits_) s.blocks.assign(parent.blocks.begin(), parent.blocks.begin() + blocks);
    manager_.fork(from, slot, tokens);
    ++forks;
  }

  void write(int32_t slot, PlainSequence& s) {
    const int32_t position = size(s);
    if (position == kMaxSeqLen || manager_.freeBlocks() == 0) return release(slot, s);
    if (position % width_ == 0) {
      ASSERT_TRUE(manager_.extend(slot, position + 1));
      if (!commits_) s.blocks.push_back(std::make_shared<int>());
    }
    const bool shared = manager_.numShared(slot, position) > 0;
    if (!commits_) {
      ASSERT_EQ(shared, s.blocks.back().use_count() > 1);
      if (shared) s.blocks.back() = std::make_shared<int>();
    }
    if (shared) {
      const BlockCopy copy = copyOf(manager_, slot, position);
      const auto at = [&](int32_t block) { return memory_.begin() + static_cast<ptrdiff_t>(block * width_); };
      std::copy_n(at(copy.from), width_, at(copy.to));
      ++copies;
    } else if (position % width_ != 0) {
      ++in_place;
    }
    ASSERT_EQ(manager_.numShared(slot, position), 0);
    s.tokens.push_back(next(s));
    cell(slot, position) = s.tokens.back();
    if (commits_) manager_.commitBlocks(slot, kNamespace, s.tokens);
  }

  void release(int32_t slot, PlainSequence& s) {
    manager_.release(slot);
    s = PlainSequence();
  }

  void check() {
    std::map<int32_t, int32_t> references;
    std::set<const int*> distinct;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const PlainSequence& s = sequences_[static_cast<size_t>(slot)];
      ASSERT_EQ(static_cast<int32_t>(manager_.table(slot).size()), manager_.blocksFor(size(s)));
      for (int32_t i = 0; i < size(s); ++i) {
        ASSERT_EQ(cell(slot, i), s.tokens[static_cast<size_t>(i)]) << "slot " << slot << ", position " << i;
      }
      for (const int32_t block : manager_.table(slot)) ++references[block];
      for (size_t i = 0; i < s.blocks.size(); ++i) {
        distinct.insert(s.blocks[i].get());
        ASSERT_EQ(manager_.references(manager_.table(slot)[i]), s.blocks[i].use_count());
      }
    }
    ASSERT_EQ(static_cast<size_t>(manager_.usedBlocks()), references.size());
    for (const auto& [block, count] : references) ASSERT_EQ(manager_.references(block), count);
    if (!commits_) {
      ASSERT_EQ(static_cast<size_t>(manager_.usedBlocks()), distinct.size());
      ASSERT_EQ(manager_.cachedBlocks(), 0);
    }
  }

  std::mt19937 random_;
  bool commits_;
  int32_t width_;
  BlockManager manager_;
  std::vector<int32_t> memory_;  // [blocks, width]
  std::vector<PlainSequence> sequences_;
  std::map<std::pair<std::vector<int32_t>, int32_t>, int32_t> values_;
};

TEST(BlockManagerFork, RandomForestsAreThePlainModel) {
  for (const bool commits : {false, true}) {
    int32_t forks = 0, copies = 0, in_place = 0, reused = 0;
    for (unsigned seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}, commits {}", seed, commits));
      Forest forest(seed, commits);
      for (int i = 0; i < 1200; ++i) {
        forest.step();
        if (::testing::Test::HasFatalFailure()) return;
      }
      forest.end();
      forks += forest.forks;
      copies += forest.copies;
      in_place += forest.in_place;
      reused += forest.reused;
    }
    EXPECT_GT(forks, 1000);
    EXPECT_GT(copies, 500);
    EXPECT_GT(in_place, 500);
    EXPECT_EQ(reused > 500, commits) << reused;
  }
}

}  // namespace
}  // namespace chorus
