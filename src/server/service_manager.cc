#include "server/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/log.h"

namespace chorus::server {
namespace {

constexpr std::chrono::seconds kRepeat{10};
constexpr std::chrono::seconds kExtension{30};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// 0 for text that is no number.
uint64_t numberOf(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::string extension(std::chrono::microseconds time) { return fmt::format("EXTEND_TIMEOUT_USEC={}", time.count()); }

}  // namespace

ServiceManager::ServiceManager(std::function<Clock::time_point()> now)
    : socket_(variable("NOTIFY_SOCKET")), now_(std::move(now)) {
  const bool known = socket_.starts_with('/') || (socket_.starts_with('@') && socket_.size() > 1);
  if (!socket_.empty() && (!known || socket_.size() >= sizeof(sockaddr_un::sun_path))) {
    log::warn("NOTIFY_SOCKET {}: neither the path of a socket nor an abstract name; the service manager hears nothing",
              socket_);
    socket_.clear();
  }
  const std::string process = variable("WATCHDOG_PID");
  if (!process.empty() && numberOf(process) != static_cast<uint64_t>(getpid())) return;
  constexpr uint64_t kYear = uint64_t{366} * 24 * 3600 * 1'000'000;
  watchdog_ = std::chrono::microseconds(std::min(numberOf(variable("WATCHDOG_USEC")), kYear));
}

void ServiceManager::send(std::string_view message) const {
  if (socket_.empty()) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return log::warn("the service manager cannot be told: {}", std::strerror(errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_.copy(address.sun_path, sizeof address.sun_path - 1);
  if (socket_.front() == '@') address.sun_path[0] = '\0';
  // A manager that does not read must not stop the server.
  const timeval patience{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const ssize_t sent =
      sendto(fd, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
  if (sent < 0) log::warn("NOTIFY_SOCKET {}: {}", socket_, std::strerror(errno));
  close(fd);
}

void ServiceManager::loading() {
  if (socket_.empty()) return;
  repeater_ = std::make_unique<Repeater>(*this, "STATUS=Loading the model\n" + extension(kExtension));
}

void ServiceManager::ready(std::string_view status) {
  repeater_.reset();
  send(fmt::format("READY=1\nSTATUS={}", status));
  last_sign_ = now_();
}

void ServiceManager::reloading() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t microseconds = int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", microseconds));
}

void ServiceManager::alive() {
  if (watchdog_.count() == 0) return;
  const auto now = now_();
  if (now - last_sign_ < watchdog_ / 2) return;
  last_sign_ = now;
  send("WATCHDOG=1");
}

void ServiceManager::stopping(std::string_view status, std::chrono::milliseconds longest) {
  send(fmt::format("STOPPING=1\nSTATUS={}\n{}", status, extension(longest)));
}

ServiceManager::Repeater::Repeater(const ServiceManager& manager, std::string message) {
  thread_ = std::thread([this, &manager, message = std::move(message)] {
    std::unique_lock lock(mutex_);
    do {
      manager.send(message);
    } while (!ended_.wait_for(lock, kRepeat, [this] { return ending_; }));
  });
}

ServiceManager::Repeater::~Repeater() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    ended_.notify_all();
  }
  thread_.join();
}

}  // namespace chorus::server
