// Keeps one client from claiming all of the adapter cache's host level, where claims last until requests end.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "runtime/adapter_cache/adapter_lease.h"

namespace chorus {

// The adapters that one client's requests have claimed.
struct ClientClaims {
  std::set<AdapterKey> adapters;
  // A request of the client has waited for the others so often that they may claim nothing before it.
  bool closed = false;
};

// The claims of each client, for the limit of AdapterStore::claim(). There is no limit if all requests with adapters of
// the last kMemory were of one client. Belongs to the step thread.
class ClaimShares {
 public:
  using Clock = std::chrono::steady_clock;
  // Clients share the cache for this long after a request with adapters came from another client than the one before.
  static constexpr std::chrono::minutes kMemory{10};

  // A request with adapters has come.
  void arrived(std::optional<uint64_t> client, Clock::time_point now) {
    if (last_client_ && *last_client_ != client) shared_until_ = now + kMemory;
    last_client_ = client;
  }
  bool shared(Clock::time_point now) const { return now < shared_until_; }

  // The claims are counted anew for each round: clear(), then add() for every claimed lease.
  void clear() { claims_.clear(); }
  void add(std::optional<uint64_t> client, const AdapterLease& lease) {
    ClientClaims& claims = claims_[client];
    for (const AdapterMember& member : lease.members) claims.adapters.insert(member.key);
  }
  ClientClaims& of(std::optional<uint64_t> client) { return claims_[client]; }

 private:
  std::optional<std::optional<uint64_t>> last_client_;
  Clock::time_point shared_until_ = Clock::time_point::min();
  std::map<std::optional<uint64_t>, ClientClaims> claims_;
};

}  // namespace chorus
