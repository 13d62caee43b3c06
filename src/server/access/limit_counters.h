// Counters of the requests that limits on use have refused.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorus::server {

enum class LimitKind : uint8_t { kRequests, kTokens, kConcurrentRequests };
inline constexpr std::array kLimitKinds = {LimitKind::kRequests, LimitKind::kTokens, LimitKind::kConcurrentRequests};

// The name of a limit in the file of keys and in metrics; in flags it follows "limit_".
constexpr std::string_view settingName(LimitKind kind) {
  constexpr std::array<std::string_view, kLimitKinds.size()> kNames = {"requests_per_minute", "tokens_per_minute",
                                                                       "concurrent_requests"};
  return kNames[static_cast<size_t>(kind)];
}

// The kinds of subjects whose use is limited. A client is an API key or, without keys, an address.
enum class LimitSubject : uint8_t { kClient, kAdapter };
inline constexpr std::array kLimitSubjects = {LimitSubject::kClient, LimitSubject::kAdapter};

constexpr std::string_view subjectName(LimitSubject subject) {
  return subject == LimitSubject::kClient ? "client" : "adapter";
}

// Thread-safe, without locks. A request that several limits refuse counts once, for the limit that its error names.
class LimitCounters {
 public:
  void count(LimitSubject subject, LimitKind kind) { at(subject, kind).fetch_add(1, std::memory_order_relaxed); }
  uint64_t refused(LimitSubject subject, LimitKind kind) const {
    return refused_[static_cast<size_t>(subject)][static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t>& at(LimitSubject subject, LimitKind kind) {
    return refused_[static_cast<size_t>(subject)][static_cast<size_t>(kind)];
  }

  std::array<std::array<std::atomic<uint64_t>, kLimitKinds.size()>, kLimitSubjects.size()> refused_{};
};

}  // namespace chorus::server
