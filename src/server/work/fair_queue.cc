#include "server/work/fair_queue.h"

#include <algorithm>

namespace chorus::server {

FairQueue::Answer FairQueue::add(uint64_t id, uint64_t client, size_t bytes) {
  if (tasks_.size() >= limits_.tasks) return Answer::kFull;
  const auto known = clients_.find(client);
  if (known != clients_.end()) {
    const Waiting& waiting = known->second;
    if (waiting.by_age.size() >= limits_.client_tasks) return Answer::kClientFull;
    if (waiting.bytes > limits_.client_bytes || bytes > limits_.client_bytes - waiting.bytes) {
      return Answer::kClientFull;
    }
  }
  try {
    const auto place = clients_.try_emplace(client).first;
    Waiting& waiting = place->second;
    if (waiting.by_age.empty()) turns_.push_back(place);
    waiting.by_age.insert(id);
    waiting.by_bytes.emplace(bytes, id);
    tasks_.emplace(id, Task{client, bytes});
    waiting.bytes += bytes;
  } catch (...) {
    undo(id, client, bytes);
    throw;
  }
  return Answer::kAdded;
}

// Reverts an add() that failed halfway for lack of memory.
void FairQueue::undo(uint64_t id, uint64_t client, size_t bytes) {
  const auto at = clients_.find(client);
  if (at == clients_.end()) return;
  at->second.by_bytes.erase({bytes, id});
  at->second.by_age.erase(id);
  if (!at->second.by_age.empty()) return;
  std::erase(turns_, at);
  clients_.erase(at);
}

void FairQueue::erase(uint64_t id) {
  const auto at = tasks_.find(id);
  const auto [client, bytes] = at->second;
  tasks_.erase(at);
  const auto place = clients_.find(client);
  Waiting& waiting = place->second;
  waiting.by_bytes.erase({bytes, id});
  waiting.by_age.erase(id);
  waiting.bytes -= bytes;
  if (!waiting.by_age.empty()) return;
  turns_.erase(std::find(turns_.begin(), turns_.end(), place));
  clients_.erase(place);
}

bool FairQueue::remove(uint64_t id) {
  if (!tasks_.contains(id)) return false;
  erase(id);
  return true;
}

bool FairQueue::mayTake(const Choice& choice, const Clients::value_type& client) {
  const auto& [id, waiting] = client;
  if (choice.left_out != nullptr && choice.left_out->contains(id)) return false;
  if (waiting.by_bytes.begin()->first > choice.max_bytes) return false;
  return std::ranges::count(choice.running, id) < choice.client_limit;
}

std::optional<FairQueue::Taken> FairQueue::take(const Choice& choice) {
  for (size_t i = 0; i < turns_.size(); ++i) {
    if (!mayTake(choice, *turns_[i])) continue;
    const uint64_t client = turns_[i]->first;
    Waiting& waiting = turns_[i]->second;
    uint64_t id = waiting.by_bytes.begin()->second;
    const bool oldest = ++waiting.turns % kOldestTurn == 0;
    if (oldest && tasks_.at(*waiting.by_age.begin()).bytes <= choice.max_bytes) id = *waiting.by_age.begin();
    // Rotates in place, because a worker must be able to take a task when memory has run out.
    std::rotate(turns_.begin() + static_cast<ptrdiff_t>(i), turns_.begin() + static_cast<ptrdiff_t>(i) + 1,
                turns_.end());
    erase(id);
    return Taken{id, client};
  }
  return std::nullopt;
}

}  // namespace chorus::server
