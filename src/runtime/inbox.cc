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
  const auto seen = seen_.try_emplace(changes_, 0).first;
  auto next = made.begin();
  try {
    for (; next != made.end(); ++next) lines_.add(next->second->client_id, next->first);
  } catch (...) {
    while (next != made.begin()) {
      --next;
      lines_.remove(next->second->client_id, next->first);
    }
    if (seen->second == 0) seen_.erase(seen);
    throw;
  }
  for (const auto& [_, request] : made) request->adapter_changes = changes_;
  seen->second += made.size();
  requests_.merge(made);
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
    taken.requests.push_back(requests_.extract(lines_.nextTurn()));
    const Request& request = *taken.requests.back().mapped();
    lines_.remove(request.client_id, request.id);
    const auto seen = seen_.find(request.adapter_changes);
    if (--seen->second == 0) seen_.erase(seen);
    left -= request.maxSequences();
  }
  taken.changes_seen = seen_.empty() ? changes_ : seen_.begin()->first;
}

}  // namespace chorus
