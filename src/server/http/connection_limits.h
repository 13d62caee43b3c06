// Chooses the connection to evict when the server is at its limits. Pure: no sockets, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace chorus::server {

enum class ConnectionPhase : uint8_t {
  kLingering,  // answered, waits for the client to close
  kSilent,     // has not sent a byte
  kIdle,       // between two requests
  kHead,       // a request's head is arriving
  kBody,       // a request's body is arriving
  kBusy,       // a request is being handled, or its answer is being written
  kEvicted,    // it is being closed to make place for another and no longer counts
};

struct ConnectionView {
  uint64_t client = 0;  // Client::id of the peer
  ConnectionPhase phase = ConnectionPhase::kSilent;
  int64_t since = 0;      // when the phase began, in any unit: only the order matters
  bool reserved = false;  // it occupies a reserved slot
};

struct ConnectionLimits {
  size_t connections = 1024;  // without the reserved ones
  size_t per_client = 256;    // of these, for one client
  size_t reserve = 32;        // additional connections, which are served health checks only
};

struct Placement {
  bool reserved = false;
  bool refused = false;           // there is no place
  std::optional<size_t> evicted;  // index in `open` of the connection to close
};

// Decides how a new connection of `client` is placed.
// - Below both limits it is accepted.
// - At the client's own limit, one of the client's own connections in a phase before kBody is evicted.
// - At the server's limit, a connection of the client that holds most is evicted, never one in kBusy. It belongs to
//   `client` or to a client that holds more than `client` does; if a request is arriving on it (kHead, kBody), to a
//   client that holds more than `client` with the new one. So a client with many connections never costs one with few
//   the connection that it keeps between its requests.
// - Among the candidates of one client, those without an arriving request are first, then the lowest phase, then the
//   oldest.
// - Without a candidate, the new connection takes a reserved slot. If all are occupied, the oldest reserved one that is
//   not in kBusy is evicted; if all of these are in kBusy, the new one is refused.
// unlimited: the client's own limit does not apply (a trusted proxy).
Placement placeConnection(std::span<const ConnectionView> open, uint64_t client, bool unlimited,
                          const ConnectionLimits& limits);

}  // namespace chorus::server
