#include "server/http/header_checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace chorus::server {
namespace {

constexpr HeadFault kMalformed{400, "The request is not well-formed HTTP."};

bool isTokenChar(char c) {
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool isToken(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), isTokenChar); }

bool isDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string lowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// uri-host [":" port] of RFC 3986.
bool isHost(std::string_view host) {
  const bool literal = host.starts_with('[');
  const size_t name_end = literal ? host.find(']') : std::min(host.find(':'), host.size());
  if (name_end == std::string_view::npos) return false;
  const std::string_view name = literal ? host.substr(1, name_end - 1) : host.substr(0, name_end);
  const std::string_view rest = host.substr(literal ? name_end + 1 : name_end);
  constexpr size_t kLongest = 255;
  if (name.empty() || name.size() > kLongest) return false;
  // A comma is not allowed, because it could join two hosts.
  const std::string_view allowed = literal ? ":." : "-._~%!$&'()*+;=";
  const char last_letter = literal ? 'f' : 'z';
  for (const char c : name) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool alphanumeric = (c >= '0' && c <= '9') || (small >= 'a' && small <= last_letter);
    if (!alphanumeric && allowed.find(c) == std::string_view::npos) return false;
  }
  return rest.empty() || (rest.size() <= 6 && rest.front() == ':' && isDigits(rest.substr(1)));
}

struct RequestLine {
  std::string_view method, target;
  bool old = false;  // HTTP/1.0
};

std::optional<HeadFault> checkRequestLine(std::string_view line, RequestLine& out) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return kMalformed;
  out.method = line.substr(0, first);
  out.target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  constexpr size_t kLongestMethod = 32;
  if (!isToken(out.method) || out.method.size() > kLongestMethod) return kMalformed;
  if (version.size() != 8 || !version.starts_with("HTTP/") || !isDigits(version.substr(5, 1)) || version[6] != '.' ||
      !isDigits(version.substr(7))) {
    return kMalformed;
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return HeadFault{505, "Only HTTP/1.0 and HTTP/1.1 are supported."};
  }
  out.old = version == "HTTP/1.0";
  const bool visible = std::all_of(out.target.begin(), out.target.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!visible || out.target.find('#') != std::string_view::npos) {
    return HeadFault{400, "The request's URL has a character that is not allowed; percent-encode it."};
  }
  if (!out.target.starts_with('/') && !(out.target == "*" && out.method == "OPTIONS")) {
    return HeadFault{400, "The request's URL must begin with a slash."};
  }
  return std::nullopt;
}

// Headers that may occur only once, because two parsers could choose different ones of two.
struct SingleHeaders {
  struct Entry {
    std::string_view name;
    std::optional<std::string_view> value;
  };
  std::array<Entry, 9> entries{{{"host", {}},
                                {"content-length", {}},
                                {"transfer-encoding", {}},
                                {"content-type", {}},
                                {"content-encoding", {}},
                                {"expect", {}},
                                {"origin", {}},
                                {"authorization", {}},
                                {"x-request-id", {}}}};

  std::optional<std::string_view> find(std::string_view name) const {
    for (const Entry& entry : entries) {
      if (entry.name == name) return entry.value;
    }
    return std::nullopt;
  }
};

std::optional<HeadFault> checkHeaderLine(std::string_view line, SingleHeaders& singles) {
  if (line.starts_with(' ') || line.starts_with('\t')) {
    return HeadFault{400, "A header line must not begin with a space: continued lines are not supported."};
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !isToken(line.substr(0, colon))) {
    return HeadFault{400, "A header line is not well-formed."};
  }
  const std::string name = lowerCase(line.substr(0, colon));
  for (SingleHeaders::Entry& entry : singles.entries) {
    if (entry.name != name) continue;
    if (entry.value) return HeadFault{400, "A header that may occur only once occurs more than once."};
    entry.value = withoutOptionalSpace(line.substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<HeadFault> checkHost(const SingleHeaders& singles, bool old) {
  const auto host = singles.find("host");
  if (!host && old) return std::nullopt;
  if (host && isHost(*host)) return std::nullopt;
  return HeadFault{400, "The request must have exactly one valid Host header."};
}

std::optional<HeadFault> checkFraming(const SingleHeaders& singles, const RequestLine& line, BodyFraming& framing) {
  const auto length = singles.find("content-length"), coding = singles.find("transfer-encoding");
  if (coding) {
    if (coding->empty()) return HeadFault{400, "Transfer-Encoding must not be empty."};
    if (line.old) return HeadFault{400, "HTTP/1.0 has no Transfer-Encoding."};
    if (length) return HeadFault{400, "A request must not have both Transfer-Encoding and Content-Length."};
    if (lowerCase(*coding) != "chunked") {
      return HeadFault{501, "Only the transfer encoding 'chunked' is supported."};
    }
    framing.chunked = true;
  }
  if (length) {
    constexpr size_t kMostDigits = 18;
    if (!isDigits(*length) || length->size() > kMostDigits) {
      return HeadFault{400, "Content-Length must be a number of at most 18 digits."};
    }
    std::from_chars(length->data(), length->data() + length->size(), framing.length);
  }
  const bool takes_body = line.method == "POST" || line.method == "PUT" || line.method == "PATCH";
  if (!takes_body && (framing.chunked || framing.length > 0)) {
    return HeadFault{400, "A request of this method must not have a body."};
  }
  if (const auto expectation = singles.find("expect")) {
    if (lowerCase(*expectation) != "100-continue") {
      return HeadFault{417, "Only the expectation '100-continue' is supported."};
    }
    framing.expects_continue = !line.old;
  }
  return std::nullopt;
}

}  // namespace

HeadScanner::Result HeadScanner::scan(std::string_view bytes) {
  for (; scanned_ < bytes.size(); ++scanned_) {
    if (scanned_ >= max_bytes_) return {0, HeadFault{431, "The request's header is too large."}};
    const char c = bytes[scanned_];
    const auto code = static_cast<unsigned char>(c);
    const bool after_cr = scanned_ > 0 && bytes[scanned_ - 1] == '\r';
    if (after_cr != (c == '\n')) return {0, kMalformed};
    if (code == 0x7f || (code < ' ' && c != '\t' && c != '\r' && c != '\n')) return {0, kMalformed};
    if (c != '\n') continue;
    if (scanned_ >= 3 && bytes[scanned_ - 2] == '\n') return {scanned_ + 1, std::nullopt};
  }
  return {};
}

std::string_view withoutOptionalSpace(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

HeadCheck checkHead(std::string_view head) {
  HeadCheck check;
  RequestLine line;
  SingleHeaders singles;
  size_t begin = 0;
  for (size_t number = 0; begin < head.size(); ++number) {
    const size_t end = head.find("\r\n", begin);
    if (end == std::string_view::npos) return {kMalformed, {}};
    const std::string_view text = head.substr(begin, end - begin);
    begin = end + 2;
    if (text.empty()) break;
    if (number > kMostHeaders) return {HeadFault{431, "The request has too many headers."}, {}};
    check.fault = number == 0 ? checkRequestLine(text, line) : checkHeaderLine(text, singles);
    if (check.fault) return check;
  }
  if (line.method.empty()) return {kMalformed, {}};
  check.fault = checkHost(singles, line.old);
  if (!check.fault) check.fault = checkFraming(singles, line, check.framing);
  return check;
}

}  // namespace chorus::server
