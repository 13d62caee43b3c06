// Turns SIGTERM and SIGINT, and SIGHUP on demand, into events that the program can wait for.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace chorus::server {

// Blocks both signals in the calling thread and in threads that it starts afterwards, and receives them on a thread of
// its own. Before becomeGraceful(), a signal ends the process at once. Afterwards the first signal is the event, and
// any further one ends the process at once. With `reloads`, SIGHUP is an event of its own and ends nothing. The
// destructor unblocks the signals in the thread that calls it.
class ShutdownSignal {
 public:
  explicit ShutdownSignal(bool reloads = false);
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;
  ShutdownSignal& operator=(const ShutdownSignal&) = delete;

  void becomeGraceful() { graceful_ = true; }
  // Waits for SIGTERM or SIGINT; false if the timeout passes or SIGHUP comes first.
  bool waitFor(std::chrono::milliseconds timeout);
  // Whether SIGHUP has come since the last call.
  bool takeReload() { return reload_.exchange(false); }

 private:
  void watch();

  const bool reloads_;
  std::atomic<bool> reload_{false};
  std::atomic<bool> graceful_{false};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  bool requested_ = false;
  std::thread thread_;
};

}  // namespace chorus::server
