#include "server/http/client_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "server/http/header_checks.h"

namespace chorus::server {
namespace {

struct Address {
  int family = AF_UNSPEC;  // AF_UNSPEC: no address
  std::array<unsigned char, 16> bytes{};
};

Address parse(std::string_view text) {
  Address address;
  const std::string plain(text.substr(0, text.find('%')));  // without an IPv6 zone
  if (inet_pton(AF_INET, plain.c_str(), address.bytes.data()) == 1) {
    address.family = AF_INET;
    return address;
  }
  if (inet_pton(AF_INET6, plain.c_str(), address.bytes.data()) != 1) return address;
  address.family = AF_INET6;
  constexpr std::array<unsigned char, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), address.bytes.begin())) {
    std::memmove(address.bytes.data(), address.bytes.data() + kMapped.size(), 4);
    address.family = AF_INET;
  }
  return address;
}

std::string textOf(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_ntop(address.family, address.bytes.data(), text.data(), text.size()) == nullptr) return {};
  return text.data();
}

// Some proxies write "192.0.2.1:4711", "[2001:db8::1]" or "[2001:db8::1]:4711".
std::string_view withoutPort(std::string_view element) {
  if (element.starts_with('[')) return element.substr(1, element.find(']') - 1);
  const size_t colon = element.find(':');
  return colon != std::string_view::npos && element.find(':', colon + 1) == std::string_view::npos
             ? element.substr(0, colon)
             : element;
}

}  // namespace

std::string clientOfAddress(std::string_view address) {
  Address parsed = parse(address);
  if (parsed.family == AF_UNSPEC) return {};
  if (parsed.family == AF_INET) return textOf(parsed);
  std::fill(parsed.bytes.begin() + 8, parsed.bytes.end(), 0);
  return textOf(parsed) + "/64";
}

TrustedProxies::TrustedProxies(const std::vector<std::string>& addresses) {
  for (const std::string& one : addresses) {
    const Address parsed = parse(one);
    if (parsed.family == AF_UNSPEC) {
      fail(ErrorCode::kInvalidArgument, "--trusted_proxies: '{}' is not an IPv4 or IPv6 address", one);
    }
    addresses_.push_back(textOf(parsed));
  }
}

bool TrustedProxies::trusts(std::string_view peer) const {
  if (addresses_.empty()) return false;
  const Address parsed = parse(peer);
  return parsed.family != AF_UNSPEC &&
         std::find(addresses_.begin(), addresses_.end(), textOf(parsed)) != addresses_.end();
}

std::string TrustedProxies::clientOf(std::string_view peer, std::string_view forwarded_for) const {
  if (trusts(peer)) {
    const size_t comma = forwarded_for.rfind(',');
    const std::string_view last = comma == std::string_view::npos ? forwarded_for : forwarded_for.substr(comma + 1);
    if (std::string client = clientOfAddress(withoutPort(withoutOptionalSpace(last))); !client.empty()) return client;
  }
  return clientOfAddress(peer);
}

}  // namespace chorus::server
