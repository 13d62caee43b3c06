#include "server/http/http_wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random_bits.h"

namespace chorus::server {

std::string_view HttpRequest::header(std::string_view lower_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_name) return value;
  }
  return {};
}

std::string_view reasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string responseHead(int status, std::string_view content_type, int64_t content_length, bool keepAlive,
                         std::string_view requestId, const HttpHeaders& headers) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nserver: chorus\r\n", status, reasonPhrase(status));
  if (!content_type.empty()) out += fmt::format("content-type: {}\r\n", content_type);
  if (content_length >= 0 && status != 204 && status != 304)
    out += fmt::format("content-length: {}\r\n", content_length);
  if (content_length < 0) out += "cache-control: no-cache\r\n";
  if (content_length == kChunkedLength) out += "transfer-encoding: chunked\r\n";
  if (!requestId.empty()) out += fmt::format("x-request-id: {}\r\n", requestId);
  for (const auto& [name, value] : headers) out += fmt::format("{}: {}\r\n", name, value);
  out += keepAlive ? "connection: keep-alive\r\n\r\n" : "connection: close\r\n\r\n";
  return out;
}

void appendChunk(std::string& out, std::string_view bytes) {
  out += fmt::format("{:x}\r\n", bytes.size());
  out += bytes;
  out += "\r\n";
}

namespace {

void appendData(std::string_view payload, std::string& out) {
  size_t begin = 0;
  while (true) {
    const size_t end = payload.find('\n', begin);
    out += "data: ";
    out += payload.substr(begin, end == std::string_view::npos ? end : end - begin);
    out += '\n';
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  out += '\n';
}

}  // namespace

std::string sseEvent(std::string_view payload) {
  std::string out;
  out.reserve(payload.size() + 16);
  appendData(payload, out);
  return out;
}

std::string sseEvent(std::string_view name, std::string_view payload) {
  std::string out = fmt::format("event: {}\n", name);
  out.reserve(out.size() + payload.size() + 16);
  appendData(payload, out);
  return out;
}

std::string randomId(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, randomBits(), randomBits());
}

bool isWellFormedRequestId(std::string_view id) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
           c == '-';
  };
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), allowed);
}

}  // namespace chorus::server
