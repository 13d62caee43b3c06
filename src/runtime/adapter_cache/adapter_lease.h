// A request's lease on its adapters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/adapter_source.h"
#include "runtime/scheduler.h"

namespace chorus {

// A distinct adapter of a request, alone or as a member of a composition.
struct AdapterMember {
  AdapterKey key;
  std::shared_ptr<const AdapterSource> source;   // where to load from; null if `parts` needs no load
  std::shared_ptr<const PreparedAdapter> parts;  // packed weights; set once loaded
};

// A combination of adapter contents and weights. Requests with equal terms share it.
struct AdapterComposition {
  // (number of the content, weight), in the request's order. Equal terms are the same composition.
  std::vector<std::pair<uint64_t, float>> terms;
  uint64_t number = 0;
  std::weak_ptr<const PreparedAdapter> parts;  // while a lease on it is on the device
};

// Empty for a request without adapters.
struct AdapterLease {
  std::vector<AdapterMember> members;
  std::vector<AdapterUse> uses;                     // of the members; sizes are known once they are loaded
  std::shared_ptr<AdapterComposition> composition;  // null: rows run with the only member
  bool is_composed = false;  // the request asked for a composition, even if it is one member with weight 1
  bool claimed = false;      // all members are pinned in the host level
  bool on_device = false;    // all members are pinned in the device level
  // The last claim failed because evictions would not free enough of the host level, for this request or for one ahead
  // of it in the queue, or because its client would leave too little for others.
  bool no_room = false;
  std::optional<uint64_t> client;  // of the request: its loads take turns with those of others
  uint64_t number = 0;             // of what the rows run with: not 0, never reused for other content
  // The adapter that the rows run with; set once all members are loaded. While a lease on a composition is not on the
  // device, `parts` equals `described`, so that requests that wait hold no composed weights.
  std::shared_ptr<const PreparedAdapter> parts;
  std::shared_ptr<const PreparedAdapter> described;  // only the content_hash of the composition; null for one adapter

  bool used() const { return !members.empty(); }
  bool ready() const { return members.empty() || parts != nullptr; }
  // A lease on the same content that has claimed nothing yet.
  AdapterLease unclaimed() const {
    AdapterLease lease = *this;
    lease.claimed = lease.on_device = lease.no_room = false;
    lease.parts = lease.described = nullptr;
    return lease;
  }
};

}  // namespace chorus
