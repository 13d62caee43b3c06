#include "runtime/adapter_cache/adapter_holds.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/adapter_cache/adapter_error.h"

namespace chorus {
namespace {

void logUnpinned(uint64_t task_id, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound)
      log::warn("the adapter of task {} is not pinned any more: {}", task_id, e.what());
  } catch (const std::exception& e) {
    log::warn("the adapter of task {} is not pinned any more: {}", task_id, e.what());
  }
}

}  // namespace

void AdapterHolds::checkPinned(const Hold& hold) const {
  AdapterSize total = store_.sizeOf(hold.lease);
  for (const auto& [_, other] : holds_) {
    if (&other != &hold && other.pinned) total += store_.sizeOf(other.lease);
  }
  if (total.within(most_pinned_)) return;
  fail(ErrorCode::kInvalidArgument,
       "pinned adapters may take at most half of the host cache and must leave room for the largest adapter: with this "
       "one they would take {} of {} bytes; unpin another one, or enlarge the cache",
       total.bytes, most_pinned_.bytes);
}

void AdapterHolds::load(uint64_t task_id, bool pin, Done done) noexcept {
  auto at = holds_.end();
  try {
    at = holds_.find(task_id);
    if (at == holds_.end()) {
      AdapterLease lease = store_.lease(executor::LoraConfig(task_id), nullptr);
      at = holds_.try_emplace(task_id).first;
      at->second.lease = std::move(lease);
    }
    Hold& hold = at->second;
    if (hold.waiting.size() >= kMaxWaiting) {
      fail(ErrorCode::kBusy, "{} callers wait for the adapter of task {}", hold.waiting.size(), task_id);
    }
    if (pin && !hold.pinned && store_.sizeIsKnown(hold.lease)) checkPinned(hold);
    hold.waiting.push_back({done, pin});
    hold.pinned = hold.pinned || pin;
    if (hold.lease.ready()) loaded(at);
  } catch (...) {
    if (at != holds_.end() && !at->second.pinned && at->second.waiting.empty()) {
      release(at->second);
      holds_.erase(at);
    }
    if (done) done(std::current_exception());
  }
}

void AdapterHolds::unpin(uint64_t task_id) noexcept {
  const auto at = holds_.find(task_id);
  if (at == holds_.end()) return;
  at->second.pinned = false;
  for (Waiting& waiting : at->second.waiting) waiting.pin = false;
  if (!at->second.waiting.empty()) return;
  release(at->second);
  holds_.erase(at);
}

void AdapterHolds::movePin(uint64_t from, uint64_t to) noexcept {
  const auto at = holds_.find(from);
  if (at == holds_.end() || !at->second.pinned) return;
  unpin(from);
  load(to, true, [to](const std::exception_ptr& error) {
    if (error) logUnpinned(to, error);
  });
}

void AdapterHolds::renewed(uint64_t task_id) noexcept {
  const auto at = holds_.find(task_id);
  if (at == holds_.end()) return;
  // A task is also unregistered because its load fails, and the load's error says more than that the task is unknown.
  at->second.gone = !store_.knows(task_id) && at->second.lease.claimed && !at->second.lease.ready();
  if (at->second.gone) return;
  release(at->second);
  try {
    at->second.lease = store_.lease(executor::LoraConfig(task_id), nullptr);
  } catch (...) {
    drop(at, std::current_exception());
  }
}

void AdapterHolds::claim() noexcept {
  for (auto at = holds_.begin(); at != holds_.end();) {
    if (at->second.lease.claimed) {
      ++at;
      continue;
    }
    try {
      AdapterLease* const lease = &at->second.lease;
      store_.claim({&lease, 1}, 0, std::numeric_limits<int32_t>::max());
    } catch (...) {
      at = drop(at, std::current_exception());
      continue;
    }
    at = at->second.lease.ready() ? loaded(at) : std::next(at);
  }
}

void AdapterHolds::give(const AdapterLoad& load) noexcept {
  const auto at = holds_.find(load.key.task_id);
  if (at == holds_.end() || at->second.lease.ready()) return;
  try {
    store_.give(load, at->second.lease);
    if (at->second.gone && at->second.lease.ready()) {
      throw unusable(ErrorCode::kNotFound, load.key.task_id, "was unregistered while it was loaded");
    }
  } catch (const Error& error) {
    // A load whose adapter was removed meanwhile may fail with kConflict, which invites to try again.
    const bool removed = at->second.gone && error.code() == ErrorCode::kConflict;
    drop(at, removed ? std::make_exception_ptr(Error(ErrorCode::kNotFound, error.what())) : std::current_exception());
    return;
  } catch (...) {
    drop(at, std::current_exception());
    return;
  }
  if (at->second.lease.ready()) loaded(at);
}

AdapterHolds::Holds::iterator AdapterHolds::loaded(Holds::iterator at) noexcept {
  Hold& hold = at->second;
  std::exception_ptr refusal;
  try {
    if (hold.pinned) {
      checkPinned(hold);
      for (const AdapterMember& member : hold.lease.members) store_.setPinned(member.key, true);
    }
  } catch (...) {
    refusal = std::current_exception();
    hold.pinned = false;
  }
  const auto waiting = std::exchange(hold.waiting, {});
  const bool nobody_asked = std::ranges::none_of(waiting, &Waiting::pin);
  if (refusal && nobody_asked) logUnpinned(at->first, refusal);
  if (!hold.pinned) {
    release(hold);
    at = holds_.erase(at);
  } else {
    ++at;
  }
  for (const Waiting& one : waiting) {
    if (one.done) one.done(one.pin ? refusal : nullptr);
  }
  return at;
}

AdapterHolds::Holds::iterator AdapterHolds::drop(Holds::iterator at, const std::exception_ptr& error) noexcept {
  const auto waiting = std::exchange(at->second.waiting, {});
  if (at->second.pinned && waiting.empty()) logUnpinned(at->first, error);
  release(at->second);
  at = holds_.erase(at);
  for (const Waiting& one : waiting) {
    if (one.done) one.done(error);
  }
  return at;
}

void AdapterHolds::release(Hold& hold) noexcept {
  for (const AdapterMember& member : hold.lease.members) store_.setPinned(member.key, false);
  store_.release(hold.lease);
}

void AdapterHolds::end(const std::exception_ptr& error) noexcept {
  for (auto at = holds_.begin(); at != holds_.end();) {
    at->second.pinned = false;
    at = drop(at, error);
  }
}

void AdapterHolds::complete(executor::AdapterState& state) const {
  const auto at = holds_.find(state.taskId);
  if (at == holds_.end()) return;
  state.pinned = at->second.pinned;
  if (at->second.lease.claimed) --state.users;
}

}  // namespace chorus
