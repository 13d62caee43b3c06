#include "server/http/shutdown_signal.h"

#include <csignal>

#include "base/log.h"

namespace chorus::server {
namespace {

sigset_t watchedSignals(bool with_reload) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (with_reload) sigaddset(&set, SIGHUP);
  return set;
}

// Ends the process by the signal itself, so that its parent sees why.
[[noreturn]] void dieBy(int signal) {
  std::signal(signal, SIG_DFL);
  const sigset_t set = watchedSignals(false);
  std::raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  std::_Exit(128 + signal);
}

}  // namespace

ShutdownSignal::ShutdownSignal(bool reloads) : reloads_(reloads) {
  const sigset_t set = watchedSignals(reloads_);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { watch(); });
}

ShutdownSignal::~ShutdownSignal() {
  ending_ = true;
  // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread): the signal is blocked; the thread receives it by sigwait
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
  const sigset_t set = watchedSignals(reloads_);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool ShutdownSignal::waitFor(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, timeout, [this] { return requested_ || reload_; });
  return requested_;
}

void ShutdownSignal::watch() {
  const sigset_t set = watchedSignals(reloads_);
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (ending_) return;
    {
      std::lock_guard lock(mutex_);
      if (signal == SIGHUP) {
        reload_ = true;
        came_.notify_all();
        continue;
      }
      if (graceful_ && !requested_) {
        log::info("shutting down: running requests may finish; a second signal ends the process at once");
        requested_ = true;
        came_.notify_all();
        continue;
      }
    }
    dieBy(signal);
  }
}

}  // namespace chorus::server
