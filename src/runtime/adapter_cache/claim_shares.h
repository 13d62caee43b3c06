// Keeps one client from claiming all of the adapter cache's host level, where claims last until requests end.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>

#include "runtime/adapter_cache/adapter_lease.h"

namespace chorus {

// The adapters that the requests of one client have claimed.
using ClientClaims = std::set<AdapterKey>;

// What each client has claimed, for the limit of AdapterStore::claim(). There is no limit while the requests with
// adapters are of one client. Belongs to the step thread.
class ClaimShares {
 public:
  using Clock = std::chrono::steady_clock;
  // How long clients share the cache after requests of two of them came in turn.
  static constexpr std::chrono::minutes kMemory{10};

  // A request with adapters has come.
  void arrived(std::optional<uint64_t> client, Clock::time_point now) {
    if (last_client_ && *last_client_ != client) shared_until_ = now + kMemory;
    last_client_ = client;
  }
  bool shared(Clock::time_point now) const { return now < shared_until_; }

  // The claims are counted anew for each round: clear(), then add() for every claimed lease.
  void clear() { claims_.clear(); }
  // client: number of FairQueue::clientOf().
  void add(uint64_t client, const AdapterLease& lease) {
    ClientClaims& claims = claims_[client];
    for (const AdapterMember& member : lease.members) claims.insert(member.key);
  }
  const ClientClaims& of(uint64_t client) { return claims_[client]; }

 private:
  std::optional<std::optional<uint64_t>> last_client_;
  Clock::time_point shared_until_ = Clock::time_point::min();
  std::unordered_map<uint64_t, ClientClaims> claims_;
};

}  // namespace chorus
