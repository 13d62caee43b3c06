// A request's hold on its adapters.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_source.h"
#include "runtime/scheduler.h"

namespace chorus {

// A distinct adapter that a request uses, alone or in a composition.
struct AdapterMember {
  AdapterKey key;
  std::shared_ptr<const AdapterSource> source;   // to load from; null where parts serve
  std::shared_ptr<const PreparedAdapter> parts;  // once claimed: set when it is loaded
};

// One content under one set of weights, shared by the requests that ask for it.
struct AdapterComposition {
  // Numbers of the contents and weights, in order: what tells compositions apart.
  std::vector<std::pair<uint64_t, float>> terms;
  uint64_t number = 0;
  std::weak_ptr<const PreparedAdapter> parts;
};

// Empty for a request without adapters.
struct AdapterTicket {
  std::vector<AdapterMember> members;
  std::vector<AdapterUse> uses;                     // of the members, their sizes known once they are loaded
  std::shared_ptr<AdapterComposition> composition;  // null: the one member as it is
  bool is_composed = false;                         // of a composition, be it of one member as it is
  bool claimed = false;                             // all members are pinned in the host level
  bool on_device = false;                           // and in the device level
  bool no_room = false;  // the last attempt to claim found the host level full of adapters in use
  uint64_t number = 0;   // of what the rows run with, never 0 and never used again for something else
  std::shared_ptr<const PreparedAdapter> parts;  // what the rows run with; set when all members are loaded

  bool used() const { return !members.empty(); }
  bool ready() const { return members.empty() || parts != nullptr; }
};

}  // namespace chorus
