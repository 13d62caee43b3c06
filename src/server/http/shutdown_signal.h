// SIGTERM and SIGINT as an event of the program.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace chorus::server {

// Blocks both signals for the threads that are started after it and takes them on a thread of its own. Until
// becomeGraceful() a signal ends the process at once, as without this class; then the first one is the event, and
// any further one ends the process at once. Restores the calling thread's mask at its end.
class ShutdownSignal {
 public:
  ShutdownSignal();
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;
  ShutdownSignal& operator=(const ShutdownSignal&) = delete;

  void becomeGraceful() { graceful_ = true; }
  // True when the event came within the timeout.
  bool waitFor(std::chrono::milliseconds timeout);

 private:
  void watch();

  std::atomic<bool> graceful_{false};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  bool requested_ = false;
  std::thread thread_;
};

}  // namespace chorus::server
