#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "cli/bench/serve/http_client.h"

namespace chorus {

HttpTarget parseHttpUrl(std::string_view url) {
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::kInvalidArgument, "--url {}: {}; give http://HOST:PORT or https://HOST:PORT", url, why);
  };
  constexpr std::string_view kPlain = "http://", kTls = "https://";
  HttpTarget target;
  target.tls = url.starts_with(kTls);
  if (target.tls) target.port = 443;
  if (!target.tls && !url.starts_with(kPlain)) refuse("no http URL");
  if (std::any_of(url.begin(), url.end(), [](unsigned char c) { return c <= ' ' || c == 127; })) {
    refuse("a blank or control character");
  }
  const std::string_view rest = url.substr(target.tls ? kTls.size() : kPlain.size());
  const size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view prefix = rest.substr(slash);
  if (prefix.find_first_of("?#") != std::string_view::npos || authority.find('@') != std::string_view::npos) {
    refuse("more than host, port and path");
  }
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse("'[' without ']'");
    target.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    target.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (target.host.empty()) refuse("no host");
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), target.port);
    if (port.front() != ':' || error != std::errc() || end != port.data() + port.size() || target.port == 0) {
      refuse("no port from 1 to 65535");
    }
  }
  if (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
  target.prefix = prefix;
  return target;
}

}  // namespace chorus
