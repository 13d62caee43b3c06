// Counters of an HTTP server, for monitoring.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace chorus::server {

// Totals since the start, except `open`. Any thread may read them.
struct HttpCounters {
  std::atomic<int64_t> open{0};           // connections that are open
  std::atomic<uint64_t> accepted{0};      // connections
  std::atomic<uint64_t> refused{0};       // connections that were closed at once, because all places were taken
  std::atomic<uint64_t> evicted{0};       // connections that were closed to make place for another
  std::atomic<uint64_t> tls_failures{0};  // connections without a successful handshake
  std::atomic<uint64_t> received_bytes{0};
  std::atomic<uint64_t> sent_bytes{0};
};

// A request that the server answered without its handler: malformed, too large, too slow, of a foreign origin, without
// a place, or a CORS preflight.
struct UnroutedAnswer {
  std::string_view id;      // of the answer's x-request-id
  std::string_view method;  // empty if the head was not readable
  std::string_view client;  // name, see client_address.h
  int status = 0;
  uint64_t bytes = 0;  // of the body
};

}  // namespace chorus::server
