#include "server/metrics/trace_context.h"

#include <algorithm>

namespace chorus::server {
namespace {

bool isHex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool isZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::string_view traceIdOf(std::string_view traceparent) {
  constexpr size_t kLength = 55;  // 2 + 1 + 32 + 1 + 16 + 1 + 2
  if (traceparent.size() < kLength) return {};
  const std::string_view version = traceparent.substr(0, 2), trace = traceparent.substr(3, 32),
                         parent = traceparent.substr(36, 16), flags = traceparent.substr(53, 2);
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') return {};
  if (!isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags)) return {};
  if (version == "ff" || isZero(trace) || isZero(parent)) return {};
  const bool longer = traceparent.size() > kLength;
  if (longer && (version == "00" || traceparent[kLength] != '-')) return {};
  return trace;
}

}  // namespace chorus::server
