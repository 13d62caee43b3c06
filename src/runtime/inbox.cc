#include "runtime/inbox.h"

#include <iterator>
#include <utility>

namespace chorus {

Inbox::Inbox(int32_t sequences) : sequences_(sequences) {}

void Inbox::add(Command command) {
  if (!std::holds_alternative<SetAdapter>(command)) {
    commands_.push_back(std::move(command));
    return;
  }
  commands_.reserve(commands_.size() + requests_.size() + 1);
  while (!requests_.empty()) commands_.emplace_back(requests_.extract(requests_.begin()));
  lines_.clear();
  commands_.push_back(std::move(command));
}

void Inbox::add(RequestTable::Requests made) {
  auto next = made.begin();
  try {
    for (; next != made.end(); ++next) lines_[next->second->client_id].push_back(next->first);
  } catch (...) {
    const auto drop_if_empty = [this](const Client& client) {
      const auto line = lines_.find(client);
      if (line != lines_.end() && line->second.empty()) lines_.erase(line);
    };
    drop_if_empty(next->second->client_id);
    while (next != made.begin()) {
      --next;
      lines_.at(next->second->client_id).pop_back();
      drop_if_empty(next->second->client_id);
    }
    throw;
  }
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
  auto line = lines_.upper_bound(latest_);
  for (int32_t left = sequences_; left > 0 && !lines_.empty();) {
    if (line == lines_.end()) line = lines_.begin();
    taken.requests.push_back(requests_.extract(line->second.front()));
    left -= taken.requests.back().mapped()->maxSequences();
    latest_ = line->first;
    line->second.pop_front();
    line = line->second.empty() ? lines_.erase(line) : std::next(line);
  }
}

}  // namespace chorus
