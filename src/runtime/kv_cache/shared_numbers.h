// Reference-counted small numbers for string keys: cache namespaces and eviction scopes.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace chorus {

// Not thread-safe. A key keeps its number as long as it has references, however many other keys come and go. A number
// without references is given out again.
class SharedNumbers {
 public:
  // Returns the key's number, never 0, and adds a reference for the caller. If an allocation throws, nothing has
  // changed.
  uint64_t acquire(std::string_view key) {
    const auto found = numbers_.find(std::string(key));
    if (found != numbers_.end()) {
      ++entryOf(found->second).references;
      return found->second;
    }
    const uint64_t number = make();
    try {
      entryOf(number).key = &numbers_.try_emplace(std::string(key), number).first->first;
    } catch (...) {
      release(number);
      throw;
    }
    return number;
  }
  // A number without a key, with one reference for the caller.
  uint64_t acquireFresh() { return make(); }
  void retain(uint64_t number) noexcept { ++entryOf(number).references; }
  void release(uint64_t number) noexcept {
    Entry& entry = entryOf(number);
    assert(entry.references > 0);
    if (--entry.references > 0) return;
    if (entry.key != nullptr) numbers_.erase(numbers_.find(*entry.key));
    entry.key = nullptr;
    free_.push_back(number);
  }

  // Count of numbers that have references.
  size_t size() const { return entries_.size() - free_.size(); }

 private:
  struct Entry {
    const std::string* key = nullptr;  // points into numbers_, whose keys do not move
    int64_t references = 0;
  };
  Entry& entryOf(uint64_t number) { return entries_[number - 1]; }

  uint64_t make() {
    if (free_.empty()) {
      if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 16);
      free_.reserve(entries_.capacity());  // so that release() never allocates
      entries_.emplace_back();
      entries_.back().references = 1;
      return entries_.size();
    }
    const uint64_t number = free_.back();
    free_.pop_back();
    entryOf(number).references = 1;
    return number;
  }

  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<Entry> entries_;  // by number - 1
  std::vector<uint64_t> free_;
};

}  // namespace chorus
