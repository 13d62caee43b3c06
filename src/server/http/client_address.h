// Which client a connection or a request belongs to: the only place where clients get their names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chorus::server {

// The client of an address in text form: an IPv4 address itself (an IPv4-mapped one too), or the /64 prefix of an IPv6
// address, because one host has a whole prefix. Empty for text that is no address.
std::string clientOfAddress(std::string_view address);

// Proxies whose X-Forwarded-For is believed.
class TrustedProxies {
 public:
  TrustedProxies() = default;
  // Throws Error(kInvalidArgument) that names --trusted_proxies for text that is no address.
  explicit TrustedProxies(const std::vector<std::string>& addresses);

  // peer: an address in text form.
  bool trusts(std::string_view peer) const;
  // The client of a request: that of the peer, or, when the peer is trusted, of the last element of the last
  // X-Forwarded-For header, which that proxy wrote itself.
  std::string clientOf(std::string_view peer, std::string_view forwarded_for) const;

 private:
  std::vector<std::string> addresses_;  // normal forms
};

}  // namespace chorus::server
