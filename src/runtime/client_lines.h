// A set of items for each client, the smallest first. The clients take turns.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "chorus/types.h"

namespace chorus {

// Not thread-safe. The items of a client are distinct.
template <typename Item>
class ClientLines {
 public:
  using Client = std::optional<executor::IdType>;

  bool empty() const { return lines_.empty(); }
  // If it throws, nothing has changed.
  void add(const Client& client, const Item& item) {
    const auto line = lines_.try_emplace(client).first;
    try {
      line->second.insert(item);
    } catch (...) {
      if (line->second.empty()) lines_.erase(line);
      throw;
    }
  }
  // The item is in the client's line.
  void remove(const Client& client, const Item& item) noexcept {
    const auto line = lines_.find(client);
    line->second.erase(item);
    if (line->second.empty()) lines_.erase(line);
  }
  // The first item of the client after the one that had the latest turn. It stays in its line. Precondition: not
  // empty().
  const Item& nextTurn() noexcept {
    auto line = lines_.upper_bound(latest_);
    if (line == lines_.end()) line = lines_.begin();
    latest_ = line->first;
    return *line->second.begin();
  }

 private:
  std::map<Client, std::set<Item>> lines_;  // none is empty
  Client latest_;                           // had the latest turn
};

}  // namespace chorus
