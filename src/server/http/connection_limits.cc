#include "server/http/connection_limits.h"

#include <tuple>
#include <unordered_map>

namespace chorus::server {
namespace {

bool mayBeEvicted(ConnectionPhase phase) {
  return phase != ConnectionPhase::kBusy && phase != ConnectionPhase::kEvicted;
}

bool isArriving(ConnectionPhase phase) { return phase == ConnectionPhase::kHead || phase == ConnectionPhase::kBody; }

// Whether, at the server's limit, a connection in `phase` may be closed for a new one of a client that holds own_held.
// held: connections of its owner; own: the owner is that client.
bool givesWay(ConnectionPhase phase, size_t held, bool own, size_t own_held) {
  // An arriving request is cut short only if its owner holds more than the client will hold with the new connection.
  if (isArriving(phase)) return held > own_held + 1;
  return own || held > own_held;
}

}  // namespace

Placement placeConnection(std::span<const ConnectionView> open, uint64_t client, bool unlimited,
                          const ConnectionLimits& limits) {
  std::unordered_map<uint64_t, size_t> held;
  size_t regular = 0;
  for (const ConnectionView& one : open) {
    if (one.reserved || one.phase == ConnectionPhase::kEvicted) continue;
    ++regular;
    ++held[one.client];
  }
  const size_t own = held[client];
  const bool own_limit = !unlimited && own >= limits.per_client;
  if (!own_limit && regular < limits.connections) return {};

  // The connection with the smallest rank is evicted. First are those of the client that holds most connections, so
  // that many half-sent requests of other clients never cost a client its only connection. Among these, connections
  // without an arriving request are first, then those with the lowest phase, then the oldest.
  using Rank = std::tuple<size_t, bool, ConnectionPhase, int64_t>;
  std::optional<size_t> best;
  Rank best_rank;
  for (size_t i = 0; i < open.size(); ++i) {
    const ConnectionView& one = open[i];
    if (one.reserved || !mayBeEvicted(one.phase)) continue;
    if (own_limit && one.client != client) continue;
    const bool arriving = isArriving(one.phase);
    const size_t of_client = held[one.client];
    // At its own limit, a client never loses a request whose body has begun.
    if (own_limit ? one.phase == ConnectionPhase::kBody : !givesWay(one.phase, of_client, one.client == client, own)) {
      continue;
    }
    const Rank rank{open.size() - of_client, arriving, one.phase, one.since};
    if (best && best_rank <= rank) continue;
    best = i;
    best_rank = rank;
  }
  if (best) return {.evicted = best};

  size_t reserved = 0;
  std::optional<size_t> oldest;
  for (size_t i = 0; i < open.size(); ++i) {
    if (!open[i].reserved || open[i].phase == ConnectionPhase::kEvicted) continue;
    ++reserved;
    if (!mayBeEvicted(open[i].phase)) continue;
    if (!oldest || open[i].since < open[*oldest].since) oldest = i;
  }
  if (reserved < limits.reserve) return {.reserved = true};
  return {.reserved = true, .refused = !oldest, .evicted = oldest};
}

}  // namespace chorus::server
