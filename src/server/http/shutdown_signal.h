// Turns SIGTERM and SIGINT into an event that the program can wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace chorus::server {

// Blocks both signals in the calling thread and in threads that it starts afterwards, and receives them on a thread of
// its own. Before becomeGraceful(), a signal ends the process at once. Afterwards the first signal is the event, and
// any further one ends the process at once. The destructor unblocks both signals in the thread that calls it.
class ShutdownSignal {
 public:
  ShutdownSignal();
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;
  ShutdownSignal& operator=(const ShutdownSignal&) = delete;

  void becomeGraceful() { graceful_ = true; }
  // Waits for the event; false if the timeout passes first.
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
