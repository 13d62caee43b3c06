// Messages to the service manager that started the process, in the protocol of systemd's sd_notify(3): datagrams of
// NAME=VALUE lines to the socket that the variable NOTIFY_SOCKET names.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace chorus::server {

// All functions do nothing if no service manager listens. Not thread-safe.
class ServiceManager {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. A socket is a path, or a name in Linux' abstract namespace if
  // it begins with '@'. now: the time by which signs of life are due; tests have their own.
  explicit ServiceManager(std::function<Clock::time_point()> now = Clock::now);

  bool isListening() const { return !socket_.empty(); }

  // Until ready(), the manager is asked every 10 s for 30 s more, because a model may take long to load.
  void loading();
  // The service is up, or has read its files again.
  void ready(std::string_view status);
  // The service begins to read its files again. Ended by ready().
  void reloading();
  // Sends a sign of life if the manager expects one (WatchdogSec=) and half of its interval has passed. Called by the
  // thread that must not hang, at least every second.
  void alive();
  // The service ends; it may take this long.
  void stopping(std::string_view status, std::chrono::milliseconds longest);

 private:
  // Sends the same message now and every 10 s until it is destroyed.
  class Repeater {
   public:
    Repeater(const ServiceManager& manager, std::string message);
    ~Repeater();
    Repeater(const Repeater&) = delete;
    Repeater& operator=(const Repeater&) = delete;

   private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool ending_ = false;
    std::thread thread_;
  };

  void send(std::string_view message) const;

  std::string socket_;                     // as in NOTIFY_SOCKET; empty: nobody listens
  std::chrono::microseconds watchdog_{0};  // 0: no sign of life is expected
  std::function<Clock::time_point()> now_;
  Clock::time_point last_sign_{};
  std::unique_ptr<Repeater> repeater_;
};

}  // namespace chorus::server
