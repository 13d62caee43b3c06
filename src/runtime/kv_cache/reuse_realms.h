// What the keys and values of a sequence depend on besides its tokens, as numbers: adapter content and cache
// salt.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace chorus {

// Not thread-safe. Remembers a bounded number of realms.
class ReuseRealms {
 public:
  static constexpr size_t kMost = 4096;

  // Never 0. Equal numbers mean equal arguments; equal arguments mostly get equal numbers: a realm that was
  // forgotten for want of room gets another, and what is cached under its old number ages out.
  // adapter_content: AdapterParts::content_hash, "" for the base.
  uint64_t number(const std::string& adapter_content, const std::string& salt) {
    // The length keeps the two parts apart.
    std::string key = std::to_string(adapter_content.size()) + ':' + adapter_content + salt;
    if (numbers_.size() >= kMost && !numbers_.contains(key)) numbers_.clear();
    const auto [entry, added] = numbers_.try_emplace(std::move(key), next_);
    if (added) ++next_;
    return entry->second;
  }
  // A realm that nobody else will get.
  uint64_t fresh() { return next_++; }

 private:
  std::unordered_map<std::string, uint64_t> numbers_;
  uint64_t next_ = 1;
};

}  // namespace chorus
