// Which connections are served when there are more than the server has places for. Pure: no sockets, no clock.
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
  kBusy,       // a request is handled or its answer is written
};

struct ConnectionView {
  uint64_t client = 0;  // Client::id of the peer
  ConnectionPhase phase = ConnectionPhase::kSilent;
  int64_t since = 0;      // when the phase began; only the order counts
  bool reserved = false;  // it has a place of the reserve
};

struct ConnectionLimits {
  size_t connections = 1024;  // beside the reserve
  size_t per_client = 256;    // of these
  size_t reserve = 32;        // further ones, which get answers about the server's health only
};

struct Placement {
  bool reserved = false;
  std::optional<size_t> evicted;  // index of the connection that gives way
};

// Where a new connection of `client` goes. Beyond the client's own limit one of its own connections without a request
// gives way, the most dispensable first and the oldest of these; beyond the server's limit one of the client that holds
// most. A connection whose request is arriving gives way only to a client that holds fewer. When none can give way the
// newcomer takes a place of the reserve, where the oldest gives way. unlimited: the client's own limit does not apply
// (a trusted proxy).
Placement placeConnection(std::span<const ConnectionView> open, uint64_t client, bool unlimited,
                          const ConnectionLimits& limits);

}  // namespace chorus::server
