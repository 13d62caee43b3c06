#include "runtime/adapter_cache/adapter_store.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/error.h"

namespace chorus {

AdapterStore::AdapterStore(int64_t budget_bytes, LoadAdapter load, int workers, std::function<void()> on_loaded)
    : cache_(budget_bytes), loader_(std::move(load), workers, std::move(on_loaded)) {}

void AdapterStore::renew(uint64_t task_id, const std::shared_ptr<const AdapterSource>& source) {
  Task& task = tasks_[task_id];
  task.key = cache_.renew(task_id);
  task.number = ++numbers_;
  task.known = source != nullptr;
  task.content_hash = source != nullptr ? source->content_hash : "";
  task.directory = source != nullptr && source->reloadable() ? source : nullptr;
  task.tensors = source;
  forgetEvicted();
}

void AdapterStore::registerSource(uint64_t task_id, std::shared_ptr<const AdapterSource> source) {
  renew(task_id, source);
}

void AdapterStore::unregister(uint64_t task_id) {
  if (tasks_.contains(task_id)) renew(task_id, nullptr);
}

AdapterTicket AdapterStore::ticket(const executor::LoraConfig& config, std::shared_ptr<const AdapterSource> source) {
  const uint64_t task_id = config.getTaskId();
  if (source != nullptr) {
    const Task& task = tasks_[task_id];
    // The same weights sent again are the same adapter.
    if (!task.known || task.content_hash != source->content_hash)
      renew(task_id, source);
    else
      tasks_[task_id].tensors = source;
  }
  AdapterTicket ticket;
  ticket.used = true;
  const auto found = tasks_.find(task_id);
  if (found != tasks_.end() && found->second.known) {
    const Task& task = found->second;
    ticket.key = task.key;
    ticket.number = task.number;
    ticket.source = task.directory != nullptr ? task.directory : task.tensors.lock();
    // Holding the packed weights keeps the request servable even if the cache drops them before its turn.
    if (ticket.source == nullptr) ticket.parts = parts(task.key);
    if (ticket.source != nullptr || ticket.parts != nullptr) return ticket;
  }
  fail(ErrorCode::kNotFound, "LoRA task {} not found in cache. Please send LoRA weights with request", task_id);
}

void AdapterStore::beginClaims() {
  may_load_ = true;
  claims_left_ = std::numeric_limits<int32_t>::max();
}

void AdapterStore::claim(AdapterTicket& ticket, int32_t times_bypassed, int32_t max_bypasses) {
  if (ticket.claimed && !may_load_) --claims_left_;
  if (!ticket.used || ticket.claimed || claims_left_ <= 0) return;
  int64_t bytes = 0;
  if (ticket.parts != nullptr)
    bytes = static_cast<int64_t>(ticket.parts->bytes);
  else if (ticket.source->reloadable())
    bytes = ticket.source->bytes;
  else
    bytes = std::min(ticket.source->bytes, cache_.budgetBytes());  // loading will tell
  switch (cache_.claim(ticket.key, bytes, may_load_)) {
    case AdapterCache::Claim::kReady:
      ticket.claimed = true;
      ticket.parts = parts(ticket.key);
      break;
    case AdapterCache::Claim::kLoading:
      ticket.claimed = true;
      break;
    case AdapterCache::Claim::kMustLoad:
      ticket.claimed = true;
      if (ticket.parts != nullptr) {
        parts_[ticket.key] = ticket.parts;
        const bool fits = cache_.loaded(ticket.key, bytes);
        assert(fits);
        static_cast<void>(fits);
      } else {
        loader_.submit(ticket.key, ticket.source);
      }
      break;
    case AdapterCache::Claim::kNoRoom:
    case AdapterCache::Claim::kAbsent:
      ticket.no_room = true;
      may_load_ = false;
      claims_left_ = std::min(claims_left_, max_bypasses - times_bypassed);
      break;
    case AdapterCache::Claim::kTooLarge:
      fail(ErrorCode::kExhausted, "PEFT Cache is full. Could not store taskId={}", ticket.key.task_id);
  }
  if (ticket.claimed) {
    ticket.no_room = false;
    if (!may_load_) --claims_left_;
    // The weights' last copy outside the cache would double their memory.
    if (ticket.parts != nullptr) ticket.source.reset();
  }
  forgetEvicted();
}

void AdapterStore::release(AdapterTicket& ticket) {
  if (ticket.claimed) cache_.release(ticket.key);
  ticket = AdapterTicket();
  forgetEvicted();
}

std::vector<AdapterLoad> AdapterStore::takeLoaded() {
  auto loads = loader_.takeDone();
  for (auto& load : loads) {
    if (load.parts != nullptr) {
      if (cache_.loaded(load.key, static_cast<int64_t>(load.parts->bytes))) {
        parts_[load.key] = load.parts;
        forgetEvicted();
        continue;
      }
      load.parts.reset();
      load.error = fmt::format("PEFT Cache is full. Could not store taskId={}", load.key.task_id);
      load.error_code = ErrorCode::kExhausted;
    } else {
      load.error = fmt::format("Error storing task={} in PEFT cache -- {}", load.key.task_id, load.error);
    }
    cache_.failed(load.key);
    // Weights that do not load are not known: the next request must bring better ones.
    const auto task = tasks_.find(load.key.task_id);
    if (task != tasks_.end() && task->second.key == load.key && task->second.directory == nullptr) {
      task->second.known = false;
    }
  }
  return loads;
}

std::shared_ptr<const PreparedAdapter> AdapterStore::parts(AdapterKey key) const {
  const auto found = parts_.find(key);
  return found == parts_.end() ? nullptr : found->second;
}

void AdapterStore::forgetEvicted() {
  for (const AdapterKey key : cache_.takeEvicted()) parts_.erase(key);
}

}  // namespace chorus
