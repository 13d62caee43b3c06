// Derives the name of the client that a connection or a request belongs to. No other code makes client names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chorus::server {

// Returns the client's name for an address in text form: an IPv4 address itself (also if it is IPv4-mapped), or the /64
// prefix of an IPv6 address, because one host has a whole /64. Empty if the text is not an address.
std::string clientOfAddress(std::string_view address);

// Proxies whose X-Forwarded-For header is trusted.
class TrustedProxies {
 public:
  TrustedProxies() = default;
  // Throws Error(kInvalidArgument), which names --trusted_proxies, for text that is not an address.
  explicit TrustedProxies(const std::vector<std::string>& addresses);

  // peer: an address in text form.
  bool trusts(std::string_view peer) const;
  // Returns the client's name for a request. If `peer` is trusted, it is derived from the last element of
  // `forwarded_for` (the last X-Forwarded-For header), which that proxy wrote itself. Otherwise, and if that element is
  // not an address, it is derived from `peer`.
  std::string clientOf(std::string_view peer, std::string_view forwarded_for) const;

 private:
  std::vector<std::string> addresses_;  // as inet_ntop() writes them
};

}  // namespace chorus::server
