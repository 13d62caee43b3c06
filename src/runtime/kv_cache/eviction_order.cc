#include "runtime/kv_cache/eviction_order.h"

namespace chorus {

EvictionOrder::EvictionOrder(int32_t num_blocks)
    : blocks_(static_cast<size_t>(num_blocks)), scopes_(1), of_size_(static_cast<size_t>(num_blocks) + 1) {}

void EvictionOrder::prepare(uint64_t scope) {
  if (scope >= scopes_.size()) scopes_.resize(scope + 1);
}

void EvictionOrder::append(ScopeList& list, Neighbours Scope::* neighbours, int64_t scope) noexcept {
  at(scope).*neighbours = {list.last, kNone};
  (list.last == kNone ? list.first : (at(list.last).*neighbours).next) = scope;
  list.last = scope;
}

void EvictionOrder::unlink(ScopeList& list, Neighbours Scope::* neighbours, int64_t scope) noexcept {
  const Neighbours gone = at(scope).*neighbours;
  (gone.previous == kNone ? list.first : (at(gone.previous).*neighbours).next) = gone.next;
  (gone.next == kNone ? list.last : (at(gone.next).*neighbours).previous) = gone.previous;
}

void EvictionOrder::leaveSize(int64_t scope) noexcept {
  const int32_t size = at(scope).size;
  if (size == 0) return;
  unlink(of_size_[static_cast<size_t>(size)], &Scope::by_size, scope);
  unlink(by_use_, &Scope::by_use, scope);
  --num_scopes_;
}

void EvictionOrder::enterSize(int64_t scope) noexcept {
  const int32_t size = at(scope).size;
  at(scope).used = now_;
  if (size > 0) {
    append(of_size_[static_cast<size_t>(size)], &Scope::by_size, scope);
    append(by_use_, &Scope::by_use, scope);
    ++num_scopes_;
    if (size > largest_) largest_ = size;
  }
  // A scope's size changes by one per call, so this loop makes at most one step.
  while (largest_ > 0 && of_size_[static_cast<size_t>(largest_)].first == kNone) --largest_;
}

void EvictionOrder::add(int32_t block, uint64_t scope, bool found_again) noexcept {
  const auto index = static_cast<int64_t>(scope);
  leaveSize(index);
  List& list = listOf(at(index), found_again);
  blocks_[static_cast<size_t>(block)] = {list.youngest, kNone, scope, found_again};
  (list.youngest == kNone ? list.oldest : blocks_[static_cast<size_t>(list.youngest)].younger) = block;
  list.youngest = block;
  ++list.size;
  ++at(index).size;
  ++size_;
  enterSize(index);
}

void EvictionOrder::remove(int32_t block) noexcept {
  const Block gone = blocks_[static_cast<size_t>(block)];
  const auto index = static_cast<int64_t>(gone.scope);
  leaveSize(index);
  List& list = listOf(at(index), gone.found_again);
  (gone.older == kNone ? list.oldest : blocks_[static_cast<size_t>(gone.older)].younger) = gone.younger;
  (gone.younger == kNone ? list.youngest : blocks_[static_cast<size_t>(gone.younger)].older) = gone.older;
  --list.size;
  --at(index).size;
  --size_;
  enterSize(index);
}

int32_t EvictionOrder::oldestOf(const Scope& scope) noexcept {
  const bool too_many = 4 * int64_t{scope.found_again.size} > 3 * int64_t{scope.size};
  return scope.fresh.size > 0 && !too_many ? scope.fresh.oldest : scope.found_again.oldest;
}

int32_t EvictionOrder::next(uint64_t asking) const noexcept {
  if (size_ == 0) return kNone;
  const Scope& rested = scopes_[static_cast<size_t>(by_use_.first)];
  if (now_ - rested.used >= kRest) return oldestOf(rested);
  const Scope& own = scopes_[asking];
  const auto pool = static_cast<int64_t>(blocks_.size());
  if (own.size > 0 && (own.size == largest_ || (int64_t{own.size} + own.in_use) * num_scopes_ >= pool))
    return oldestOf(own);
  return oldestOf(scopes_[static_cast<size_t>(of_size_[static_cast<size_t>(largest_)].first)]);
}

}  // namespace chorus
