// The order in which cached blocks are evicted, fair between scopes. A block's scope is that of the sequences that
// wrote it.
//
// When scope S needs room, the scope that loses a block is
//  1. a scope whose cached blocks have not changed for kRest seconds, the longest unchanged first;
//  2. else S itself, if it has its share: S has the most cached blocks, or its cached and used blocks together are at
//     least the pool divided by the number of scopes with cached blocks;
//  3. else the scope with the most cached blocks.
// So a scope that fills its share as fast as it can takes nothing from one below its share, and an unused scope keeps
// its blocks until others need the room.
//
// Within a scope, the oldest block that was never reused is evicted first, as long as reused blocks are at most three
// quarters of the scope; else the oldest reused block. So a stream of prompts that occur once does not evict the
// prompts that are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorus {

// Not thread-safe. Every operation takes constant time; only prepare() allocates.
class EvictionOrder {
 public:
  static constexpr int32_t kNone = -1;
  // Seconds without a change of its cached blocks after which a scope has no share.
  static constexpr int64_t kRest = 600;

  explicit EvictionOrder(int32_t num_blocks);

  // Must be called before any other function names the scope. Numbers are indices of a vector, so they should be small.
  void prepare(uint64_t scope);
  // Sets the time in seconds, which must never decrease. It is 0 until it is set.
  void setTime(int64_t now) { now_ = now; }

  int32_t size() const { return size_; }
  int32_t sizeOf(uint64_t scope) const { return scopes_[scope].size; }

  // Adds a cached block as the youngest of its scope. found_again: it was reused.
  void add(int32_t block, uint64_t scope, bool found_again) noexcept;
  void remove(int32_t block) noexcept;
  // Changes the number of blocks that the scope's sequences use.
  void use(uint64_t scope, int32_t by) noexcept { scopes_[scope].in_use += by; }
  // The block to evict when scope `asking` needs room; kNone if no block is cached.
  int32_t next(uint64_t asking) const noexcept;

 private:
  struct List {
    int32_t oldest = kNone;
    int32_t youngest = kNone;
    int32_t size = 0;
  };
  struct Block {
    int32_t older = kNone;
    int32_t younger = kNone;
    uint64_t scope = 0;
    bool found_again = false;
  };
  // A scope's neighbours in a list of scopes.
  struct Neighbours {
    int64_t previous = kNone;
    int64_t next = kNone;
  };
  struct Scope {
    List fresh, found_again;
    int32_t size = 0;  // of both lists
    int32_t in_use = 0;
    int64_t used = 0;  // time of the last change of the lists, in seconds
    Neighbours by_size, by_use;
  };
  struct ScopeList {
    int64_t first = kNone;
    int64_t last = kNone;
  };
  List& listOf(Scope& scope, bool found_again) { return found_again ? scope.found_again : scope.fresh; }
  Scope& at(int64_t scope) { return scopes_[static_cast<size_t>(scope)]; }
  void append(ScopeList& list, Neighbours Scope::* neighbours, int64_t scope) noexcept;
  void unlink(ScopeList& list, Neighbours Scope::* neighbours, int64_t scope) noexcept;
  void leaveSize(int64_t scope) noexcept;
  void enterSize(int64_t scope) noexcept;
  static int32_t oldestOf(const Scope& scope) noexcept;

  std::vector<Block> blocks_;
  std::vector<Scope> scopes_;
  std::vector<ScopeList> of_size_;  // by number of cached blocks; in a list, the scope that has had it longest is first
  ScopeList by_use_;                // scopes with cached blocks, the one unchanged longest first
  int32_t largest_ = 0;
  int32_t num_scopes_ = 0;  // scopes with cached blocks
  int32_t size_ = 0;
  int64_t now_ = 0;
};

}  // namespace chorus
