#include "runtime/inbox.h"

#include <utility>

namespace chorus {

Inbox::Inbox(int32_t sequences) : sequences_(sequences) {}

void Inbox::add(Command command) {
  commands_.push_back(std::move(command));
  if (auto* set = std::get_if<SetAdapter>(&commands_.back())) set->number = ++changes_;
}

void Inbox::add(RequestTable::Requests made) {
  if (made.empty()) return;
  std::vector<Place> places;
  places.reserve(made.size());
  for (const auto& [_, request] : made) places.push_back(placeOf(*request));
  const auto seen = seen_.try_emplace(changes_, 0).first;
  size_t added = 0;
  const auto clientOf = [&](const Place& place) { return made.at(place.position.arrival)->client_id; };
  try {
    for (; added < places.size(); ++added) lines_.add(clientOf(places[added]), places[added]);
  } catch (...) {
    while (added-- > 0) lines_.remove(clientOf(places[added]), places[added]);
    if (seen->second == 0) seen_.erase(seen);
    throw;
  }
  for (const auto& [_, request] : made) request->adapter_changes = changes_;
  seen->second += made.size();
  requests_.merge(made);
}

// A request with tensors is a group of its own.
Inbox::Place Inbox::placeOf(const Request& request) noexcept {
  const bool brings_tensors = request.lora_source != nullptr;
  if (brings_tensors) ++groups_;
  const auto sequences = request.sequences();
  const float priority = sequences.empty() ? 0 : sequences.front()->position.priority;
  const Place place{groups_, {.priority = priority, .arrival = request.id}};
  if (brings_tensors) ++groups_;
  return place;
}

bool Inbox::cancel(executor::IdType id) noexcept {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return false;
  found->second->cancelled = true;
  return true;
}

Inbox::Taken Inbox::makeTaken() const {
  Taken taken;
  taken.requests.reserve(static_cast<size_t>(sequences_));
  return taken;
}

void Inbox::take(Taken& taken) noexcept {
  taken.commands.swap(commands_);
  for (int32_t left = sequences_; left > 0 && !lines_.empty();) {
    const Place place = lines_.nextTurn();
    taken.requests.push_back(requests_.extract(place.position.arrival));
    const Request& request = *taken.requests.back().mapped();
    lines_.remove(request.client_id, place);
    const auto seen = seen_.find(request.adapter_changes);
    if (--seen->second == 0) seen_.erase(seen);
    left -= request.maxSequences();
  }
  taken.changes_seen = seen_.empty() ? changes_ : seen_.begin()->first;
}

}  // namespace chorus
