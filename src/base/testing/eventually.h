// Waits for what other threads do. Only tests use it.
#pragma once

#include <chrono>
#include <thread>

namespace chorus {

// How long a test waits for something that must happen: much longer than any machine needs, so that only a fault
// reaches it.
constexpr std::chrono::seconds kPatience{120};

// Waits until the condition is met, and returns whether it is. It is evaluated again and again by the calling thread.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace chorus
