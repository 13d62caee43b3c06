// Compares the block manager with a simple model: a map from whole prefixes to reference counts, searched in full for
// every eviction. It also checks a simulated memory: a reused block holds what its new user would have written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "runtime/kv_cache/block_manager.h"

namespace chorus {
namespace {

// A cache namespace, then every token up to a block's end.
using Prefix = std::pair<uint64_t, std::vector<int32_t>>;

struct Sequence {
  uint64_t cache_namespace = 0;
  uint64_t scope = 0;
  std::vector<int32_t> tokens;
  int32_t written = 0;
  int32_t blocks = 0;
};

struct PlainPool {
  struct Content {
    int32_t users = 0;
    uint64_t inserted = 0;
    bool found_again = false;
    uint64_t scope = 0;     // of the sequence that wrote it
    uint64_t released = 0;  // stamp, while it has no users
  };
  struct Scope {
    int32_t size = 0, in_use = 0;
    uint64_t changed = 0;  // stamp of the last change of size
    int64_t used = 0;
  };
  int32_t total = 0, width = 0;
  std::map<Prefix, Content> contents;  // complete blocks
  std::map<uint64_t, Scope> scopes;
  int32_t incomplete = 0;  // blocks of tables that are not in `contents`
  uint64_t stamps = 0;
  int64_t now = 0;

  Prefix prefixOf(const Sequence& s, int32_t blocks) const {
    return {s.cache_namespace, {s.tokens.begin(), s.tokens.begin() + int64_t{blocks} * width}};
  }
  int32_t used() const {
    int32_t count = incomplete;
    for (const auto& [_, content] : contents) count += content.users > 0;
    return count;
  }
  int32_t cached() const {
    int32_t count = 0;
    for (const auto& [_, content] : contents) count += content.users == 0;
    return count;
  }
  int32_t cachedOf(uint64_t scope) const {
    const auto found = scopes.find(scope);
    return found == scopes.end() ? 0 : found->second.size;
  }

  PrefixMatch match(const Sequence& s, int32_t max_tokens) const {
    PrefixMatch found;
    while (found.blocks < max_tokens / width) {
      const auto entry = contents.find(prefixOf(s, found.blocks + 1));
      if (entry == contents.end()) break;
      ++found.blocks;
      found.cached += entry->second.users == 0;
    }
    return found;
  }
  void resize(uint64_t scope, int32_t by) {
    scopes[scope].size += by;
    scopes[scope].changed = ++stamps;
    scopes[scope].used = now;
  }
  void cache(Content& content) {
    content.released = ++stamps;
    resize(content.scope, 1);
  }
  void use(const Prefix& prefix) {
    Content& content = contents.at(prefix);
    if (content.users++ > 0) return;
    content.found_again = true;
    resize(content.scope, -1);
  }
  void reuse(Sequence& s, int32_t blocks) {
    for (int32_t i = 1; i <= blocks; ++i) use(prefixOf(s, i));
    s.blocks = blocks;
    s.written = blocks * width;
    scopes[s.scope].in_use += blocks;
  }

  uint64_t giving(uint64_t asking) const {
    const std::pair<const uint64_t, Scope>*rested = nullptr, *largest = nullptr;
    int32_t with_blocks = 0;
    for (const auto& scope : scopes) {
      if (scope.second.size == 0) continue;
      ++with_blocks;
      if (rested == nullptr || scope.second.changed < rested->second.changed) rested = &scope;
      const auto rank = [](const Scope& x) { return std::pair(-x.size, x.changed); };
      if (largest == nullptr || rank(scope.second) < rank(largest->second)) largest = &scope;
    }
    if (now - rested->second.used >= EvictionOrder::kRest) return rested->first;
    const int32_t own = cachedOf(asking);
    if (own > 0 && (own == largest->second.size || (own + scopes.at(asking).in_use) * with_blocks >= total))
      return asking;
    return largest->first;
  }
  std::map<Prefix, Content>::iterator oldestOf(uint64_t scope) {
    int32_t found_again = 0;
    for (const auto& [_, content] : contents)
      found_again += content.users == 0 && content.scope == scope && content.found_again;
    const int32_t size = cachedOf(scope);
    const bool take_found = found_again == size || 4 * found_again > 3 * size;
    auto oldest = contents.end();
    for (auto at = contents.begin(); at != contents.end(); ++at) {
      const Content& content = at->second;
      if (content.users > 0 || content.scope != scope || content.found_again != take_found) continue;
      if (oldest == contents.end() || content.released < oldest->second.released) oldest = at;
    }
    return oldest;
  }
  // Returns the block that was inserted last among those that directly follow the prefix; null if there is none.
  Content* followerOf(const Prefix& prefix) {
    Content* follower = nullptr;
    for (auto& [other, content] : contents) {
      if (other.first != prefix.first || other.second.size() != prefix.second.size() + static_cast<size_t>(width))
        continue;
      if (!std::equal(prefix.second.begin(), prefix.second.end(), other.second.begin())) continue;
      if (follower == nullptr || content.inserted > follower->inserted) follower = &content;
    }
    return follower;
  }
  void evict(uint64_t asking) {
    for (;;) {
      const auto going = oldestOf(giving(asking));
      Content& content = going->second;
      resize(content.scope, -1);
      const Content* follower = followerOf(going->first);
      if (follower == nullptr) {
        contents.erase(going);
        return;
      }
      EXPECT_EQ(follower->users, 0);
      ++moved;
      content.found_again = follower->found_again;
      content.scope = follower->scope;
      cache(content);
    }
  }
  bool extend(Sequence& s) {
    const int32_t wanted = (static_cast<int32_t>(s.tokens.size()) + width - 1) / width;
    if (wanted - s.blocks > total - used()) return false;
    for (; s.blocks < wanted; ++s.blocks) {
      if (used() + cached() == total) evict(s.scope);
      ++incomplete;
      ++scopes[s.scope].in_use;
    }
    return true;
  }
  void written(Sequence& s, int32_t tokens) {
    for (int32_t i = s.written / width + 1; i <= tokens / width; ++i) {
      const Prefix prefix = prefixOf(s, i);
      if (contents.contains(prefix)) {
        use(prefix);
      } else {
        contents[prefix].users = 1;
        contents[prefix].inserted = ++stamps;
        contents[prefix].scope = s.scope;
      }
      --incomplete;
    }
    s.written = tokens;
  }
  void release(Sequence& s) {
    incomplete -= s.blocks - s.written / width;
    scopes[s.scope].in_use -= s.blocks;
    for (int32_t i = s.written / width; i > 0; --i) {
      Content& content = contents.at(prefixOf(s, i));
      if (--content.users == 0) cache(content);
    }
    s = Sequence();
  }
  int64_t moved = 0;  // evicted blocks that moved to a follower's scope instead
};

class Comparison {
 public:
  Comparison(unsigned seed, uint64_t hash_mask)
      : random_(seed),
        width_(1 + pick(4)),
        num_scopes_(1 + pick(4)),
        manager_({.num_blocks = kBlocks,
                  .tokens_per_block = width_,
                  .num_slots = kSlots,
                  .max_seq_len = kMaxSeqLen,
                  .hash_mask = hash_mask},
                 {&cache_namespaces_, &scopes_}),
        memory_(kBlocks) {
    for (const char* name : {"a", "b"}) cache_namespaces_.acquire(name);
    for (int32_t i = 0; i < num_scopes_; ++i) scopes_.acquire(std::to_string(i));
    model_.total = kBlocks;
    model_.width = width_;
  }

  void step() {
    const int32_t slot = pick(kSlots);
    model_.now += pick(40) == 0 ? EvictionOrder::kRest / 2 : 0;
    manager_.setTime(model_.now);
    Sequence& s = sequences_[static_cast<size_t>(slot)];
    if (s.cache_namespace == 0)
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
    // After these releases, only blocks in the tree refer to cache namespaces and scopes.
    for (const uint64_t cache_namespace : {1, 2}) cache_namespaces_.release(cache_namespace);
    for (int32_t i = 1; i <= num_scopes_; ++i) scopes_.release(static_cast<uint64_t>(i));
    std::set<uint64_t> cache_namespaces, scopes;
    for (const auto& [prefix, content] : model_.contents) {
      cache_namespaces.insert(prefix.first);
      scopes.insert(content.scope);
    }
    ASSERT_EQ(cache_namespaces_.size(), cache_namespaces.size());
    ASSERT_EQ(scopes_.size(), scopes.size());
  }

  int64_t moved() const { return model_.moved; }

 private:
  static constexpr int32_t kBlocks = 29, kSlots = 6, kMaxSeqLen = 28;

  int32_t pick(int32_t below) { return static_cast<int32_t>(random_() % static_cast<unsigned>(below)); }
  void add(Sequence& s, int32_t count) {
    while (count-- > 0) s.tokens.push_back(pick(8) == 0);  // two letters, so that many sequences are alike
  }

  void begin(int32_t slot, Sequence& s) {
    s.cache_namespace = 1 + static_cast<uint64_t>(pick(2));
    s.scope = 1 + static_cast<uint64_t>(pick(num_scopes_));
    manager_.prepare(s.scope);
    manager_.occupy(slot, s.scope);
    add(s, 1 + pick(kMaxSeqLen));
    const int32_t most =
        pick(4) == 0 ? pick(static_cast<int32_t>(s.tokens.size())) : static_cast<int32_t>(s.tokens.size()) - 1;
    const PrefixMatch found = manager_.match(s.cache_namespace, s.tokens, most), expected = model_.match(s, most);
    ASSERT_EQ(found.blocks, expected.blocks);
    ASSERT_EQ(found.cached, expected.cached);
    manager_.reuse(slot, s.cache_namespace, s.tokens, found.blocks);
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
    manager_.commitBlocks(slot, s.cache_namespace, std::span(s.tokens).first(static_cast<size_t>(now)));
    for (int32_t i = 0; i < now / width_; ++i) {
      ASSERT_EQ(memory_[at(slot, i)], model_.prefixOf(s, i + 1))
          << "block " << i << " was replaced by one with other content";
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
    for (uint64_t scope = 1; scope <= static_cast<uint64_t>(num_scopes_); ++scope) {
      manager_.prepare(scope);
      ASSERT_EQ(manager_.cachedOf(scope), model_.cachedOf(scope)) << "scope " << scope;
    }
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
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      int32_t alone = 0;
      for (const int32_t block : manager_.table(slot)) alone += references[block] == 1;
      ASSERT_EQ(manager_.usedAlone(slot), alone);
    }
    std::vector<int32_t> freed(kSlots);
    manager_.freedBy(slots, freed);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      int32_t expected = 0;
      for (const int32_t block : manager_.table(slot)) expected += --references[block] == 0;
      ASSERT_EQ(freed[static_cast<size_t>(slot)], expected);
    }
  }

  std::mt19937 random_;
  int32_t width_, num_scopes_;
  SharedNumbers cache_namespaces_, scopes_;
  BlockManager manager_;
  PlainPool model_;
  std::vector<Sequence> sequences_{kSlots};
  std::vector<Prefix> memory_;
  int64_t reused_ = 0, evicted_ = 0;
};

// With the smaller masks most or all hashes collide.
TEST(BlockManagerRandom, IsThePlainModel) {
  int64_t moved = 0;
  for (const uint64_t hash_mask : {~uint64_t{0}, uint64_t{3}, uint64_t{0}}) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}, hash mask {:x}", seed, hash_mask));
      Comparison comparison(seed, hash_mask);
      for (int i = 0; i < 1500; ++i) {
        comparison.step();
        if (::testing::Test::HasFatalFailure()) return;
      }
      comparison.end();
      moved += comparison.moved();
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(moved, 100) << "too few blocks moved to another scope";
}

}  // namespace
}  // namespace chorus
