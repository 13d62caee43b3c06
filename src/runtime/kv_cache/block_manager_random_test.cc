// The block manager against a plain model of itself: a map from whole prefixes to reference counts, and a
// list of those that nobody uses in the order they were released. And against memory: what stands in a block
// that is taken over is what its taker would have written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>
#include <set>

#include "runtime/kv_cache/block_manager.h"

namespace chorus {
namespace {

// A realm, then every token up to a block's end.
using Prefix = std::pair<uint64_t, std::vector<int32_t>>;

struct Sequence {
  uint64_t realm = 0;
  std::vector<int32_t> tokens;
  int32_t written = 0;
  int32_t blocks = 0;
};

struct PlainPool {
  int32_t total = 0, width = 0;
  std::map<Prefix, int32_t> users;  // of complete blocks
  std::list<Prefix> unused;         // oldest first
  int32_t incomplete = 0;           // blocks of tables that are not in `users`

  Prefix prefixOf(const Sequence& s, int32_t blocks) const {
    return {s.realm, {s.tokens.begin(), s.tokens.begin() + int64_t{blocks} * width}};
  }
  int32_t used() const {
    int32_t count = incomplete;
    for (const auto& [_, n] : users) count += n > 0;
    return count;
  }
  int32_t cached() const { return static_cast<int32_t>(unused.size()); }

  PrefixMatch match(const Sequence& s, int32_t max_tokens) const {
    PrefixMatch found;
    while (found.blocks < max_tokens / width) {
      const auto entry = users.find(prefixOf(s, found.blocks + 1));
      if (entry == users.end()) break;
      ++found.blocks;
      found.cached += entry->second == 0;
    }
    return found;
  }
  void use(const Prefix& prefix) {
    if (users[prefix]++ == 0) unused.remove(prefix);
  }
  void reuse(Sequence& s, int32_t blocks) {
    for (int32_t i = 1; i <= blocks; ++i) use(prefixOf(s, i));
    s.blocks = blocks;
    s.written = blocks * width;
  }
  bool extend(Sequence& s) {
    const int32_t wanted = (static_cast<int32_t>(s.tokens.size()) + width - 1) / width;
    if (wanted - s.blocks > total - used()) return false;
    for (; s.blocks < wanted; ++s.blocks) {
      if (used() + cached() == total) {
        for (const auto& [prefix, _] : users) {
          const bool follows =
              prefix.first == unused.front().first && prefix.second.size() > unused.front().second.size() &&
              std::equal(unused.front().second.begin(), unused.front().second.end(), prefix.second.begin());
          EXPECT_FALSE(follows) << "a block is evicted before one that follows it";
        }
        users.erase(unused.front());
        unused.pop_front();
      }
      ++incomplete;
    }
    return true;
  }
  void written(Sequence& s, int32_t tokens) {
    for (int32_t i = s.written / width + 1; i <= tokens / width; ++i) {
      const Prefix prefix = prefixOf(s, i);
      if (users.contains(prefix))
        use(prefix);
      else
        users[prefix] = 1;
      --incomplete;
    }
    s.written = tokens;
  }
  void release(Sequence& s) {
    incomplete -= s.blocks - s.written / width;
    for (int32_t i = s.written / width; i > 0; --i) {
      const Prefix prefix = prefixOf(s, i);
      if (--users[prefix] == 0) unused.push_back(prefix);
    }
    s = Sequence();
  }
};

class Comparison {
 public:
  Comparison(unsigned seed, uint64_t hash_mask)
      : random_(seed), width_(1 + pick(4)), manager_(kBlocks, width_, kSlots, kMaxSeqLen, hash_mask), memory_(kBlocks) {
    model_.total = kBlocks;
    model_.width = width_;
  }

  void step() {
    const int32_t slot = pick(kSlots);
    Sequence& s = sequences_[static_cast<size_t>(slot)];
    if (s.realm == 0)
      begin(slot, s);
    else if (pick(5) == 0)
      release(slot, s);
    else if (s.written < static_cast<int32_t>(s.tokens.size()))
      write(slot, s);
    else
      append(slot, s);
    compare();
  }

  void end() {
    for (int32_t slot = 0; slot < kSlots; ++slot) release(slot, sequences_[static_cast<size_t>(slot)]);
    compare();
    ASSERT_EQ(manager_.usedBlocks(), 0) << "blocks leak";
    ASSERT_GT(reused_, 0);
    ASSERT_GT(evicted_, 0);
  }

 private:
  static constexpr int32_t kBlocks = 29, kSlots = 6, kMaxSeqLen = 28;

  int32_t pick(int32_t below) { return static_cast<int32_t>(random_() % static_cast<unsigned>(below)); }
  void add(Sequence& s, int32_t count) {
    while (count-- > 0) s.tokens.push_back(pick(8) == 0);  // two letters: many are alike
  }

  void begin(int32_t slot, Sequence& s) {
    s.realm = 1 + static_cast<uint64_t>(pick(2));
    add(s, 1 + pick(kMaxSeqLen));
    const int32_t most =
        pick(4) == 0 ? pick(static_cast<int32_t>(s.tokens.size())) : static_cast<int32_t>(s.tokens.size()) - 1;
    const PrefixMatch found = manager_.match(s.realm, s.tokens, most), expected = model_.match(s, most);
    ASSERT_EQ(found.blocks, expected.blocks);
    ASSERT_EQ(found.cached, expected.cached);
    manager_.reuse(slot, s.realm, s.tokens, found.blocks);
    model_.reuse(s, found.blocks);
    reused_ += found.blocks;
    for (int32_t i = 0; i < found.blocks; ++i) {
      ASSERT_EQ(memory_[at(slot, i)], model_.prefixOf(s, i + 1)) << "block " << i << " holds something else";
    }
    extend(slot, s);
  }

  void extend(int32_t slot, Sequence& s) {
    const int32_t cached = model_.cached();
    const bool fits = model_.extend(s);
    ASSERT_EQ(manager_.extend(slot, static_cast<int32_t>(s.tokens.size())), fits);
    evicted_ += cached - model_.cached();
    if (!fits) release(slot, s);
  }

  void append(int32_t slot, Sequence& s) {
    const auto room = kMaxSeqLen - static_cast<int32_t>(s.tokens.size());
    if (room == 0) return release(slot, s);
    add(s, 1 + pick(std::min(room, 3)));
    extend(slot, s);
  }

  void write(int32_t slot, Sequence& s) {
    const int32_t missing = static_cast<int32_t>(s.tokens.size()) - s.written;
    const int32_t now = s.written + 1 + pick(missing);
    for (int32_t i = s.written / width_; i < now / width_; ++i) {
      memory_[at(slot, i)] = model_.prefixOf(s, i + 1);
    }
    model_.written(s, now);
    manager_.written(slot, s.realm, std::span(s.tokens).first(static_cast<size_t>(now)));
    for (int32_t i = 0; i < now / width_; ++i) {
      ASSERT_EQ(memory_[at(slot, i)], model_.prefixOf(s, i + 1)) << "block " << i << " was changed for another";
    }
  }

  void release(int32_t slot, Sequence& s) {
    manager_.release(slot);
    model_.release(s);
  }

  size_t at(int32_t slot, int32_t index) const {
    return static_cast<size_t>(manager_.table(slot)[static_cast<size_t>(index)]);
  }

  void compare() {
    ASSERT_EQ(manager_.usedBlocks(), model_.used());
    ASSERT_EQ(manager_.cachedBlocks(), model_.cached());
    ASSERT_EQ(manager_.usedBlocks() + manager_.freeBlocks(), kBlocks);
    std::map<int32_t, int32_t> references;
    std::vector<int32_t> slots;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      ASSERT_EQ(manager_.table(slot).size(), static_cast<size_t>(sequences_[static_cast<size_t>(slot)].blocks));
      for (const int32_t block : manager_.table(slot)) ++references[block];
      slots.push_back(slot);
    }
    ASSERT_EQ(references.size(), static_cast<size_t>(manager_.usedBlocks()));
    for (const auto& [block, count] : references) ASSERT_EQ(manager_.references(block), count);
    std::vector<int32_t> freed(kSlots);
    manager_.freedBy(slots, freed);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      int32_t expected = 0;
      for (const int32_t block : manager_.table(slot)) expected += --references[block] == 0;
      ASSERT_EQ(freed[static_cast<size_t>(slot)], expected);
    }
  }

  std::mt19937 random_;
  int32_t width_;
  BlockManager manager_;
  PlainPool model_;
  std::vector<Sequence> sequences_{kSlots};
  std::vector<Prefix> memory_;
  int64_t reused_ = 0, evicted_ = 0;
};

// With the mask most or all hashes collide.
TEST(BlockManagerRandom, IsThePlainModel) {
  for (const uint64_t hash_mask : {~uint64_t{0}, uint64_t{3}, uint64_t{0}}) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}, hash mask {:x}", seed, hash_mask));
      Comparison comparison(seed, hash_mask);
      for (int i = 0; i < 1500; ++i) {
        comparison.step();
        if (::testing::Test::HasFatalFailure()) return;
      }
      comparison.end();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace chorus
