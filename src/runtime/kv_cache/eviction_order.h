// In which order cached blocks give way, fairly between scopes: a scope is whoever's sequences wrote them.
//
// Who asks for room gives up its own first if it has its share, which is the pool divided by the scopes that have
// cached blocks, of cached blocks and those in use together; else the scope with the most cached ones gives. So a scope
// that fills its share as fast as it can takes nothing from one that stays below its own. A scope that rested long
// gives before all others: what it has is kept as long as nobody else could use the room.
//
// Within a scope blocks that were found again stay longer than those that never were, as long as they are not more than
// three quarters of it: a stream of prompts that come once does not wash out what is used. Else the oldest goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorus {

// Not thread-safe. Every operation takes constant time; only prepare() allocates.
class EvictionOrder {
 public:
  static constexpr int32_t kNone = -1;
  // After so many seconds without being used a scope has no share.
  static constexpr int64_t kRest = 600;

  explicit EvictionOrder(int32_t num_blocks);

  // A scope that may be named from now on. Numbers are small: they are indices.
  void prepare(uint64_t scope);
  // In seconds, ascending; 0 until set.
  void setTime(int64_t now) { now_ = now; }

  int32_t size() const { return size_; }
  int32_t sizeOf(uint64_t scope) const { return scopes_[scope].size; }

  // The block is cached, the youngest of its scope.
  void add(int32_t block, uint64_t scope, bool found_again) noexcept;
  void remove(int32_t block) noexcept;
  // Its sequences use so many blocks more, or less.
  void use(uint64_t scope, int32_t by) noexcept { scopes_[scope].in_use += by; }
  // Which block goes for the sake of `asking`; kNone: there are none.
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
  // Neighbours of a scope in a list of scopes.
  struct Neighbours {
    int64_t previous = kNone;
    int64_t next = kNone;
  };
  struct Scope {
    List fresh, found_again;
    int32_t size = 0;  // of both
    int32_t in_use = 0;
    int64_t used = 0;  // when
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
  std::vector<ScopeList> of_size_;  // scopes with so many cached blocks; those that have been it longest first
  ScopeList by_use_;                // scopes with cached blocks, the one that rested longest first
  int32_t largest_ = 0;
  int32_t num_scopes_ = 0;  // with cached blocks
  int32_t size_ = 0;
  int64_t now_ = 0;
};

}  // namespace chorus
