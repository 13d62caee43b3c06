// Requests that wait until the tokenizer files of their adapter are read.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::server {

// Not thread-safe.
class TextWaits {
 public:
  using Clock = std::chrono::steady_clock;
  using Id = uint64_t;                 // at least 1
  using Then = std::function<void()>;  // continues the request

  Id add(std::string adapter, Then then, Clock::time_point now);
  // Each function below removes waits and returns them; the caller runs them.
  Then take(Id id);  // empty if there is no such wait
  std::vector<Then> takeAllOf(std::string_view adapter);
  std::vector<Then> takeOlderThan(Clock::time_point time);
  std::vector<Then> takeAll();
  // The adapters that are waited for, the one with the oldest wait first.
  std::vector<std::string> adapters() const;

 private:
  struct Wait {
    std::string adapter;
    Then then;
    Clock::time_point since;
  };
  template <typename Chosen>
  std::vector<Then> takeIf(const Chosen& chosen);

  Id last_ = 0;
  std::map<Id, Wait> waits_;  // the oldest first
};

}  // namespace chorus::server
