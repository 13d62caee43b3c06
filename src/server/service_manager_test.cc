#include "server/service_manager.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "base/testing/eventually.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;

// The socket of a service manager.
class Manager {
 public:
  explicit Manager(const std::string& name) : name_(name), fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path, sizeof address.sun_path - 1);
    if (name_.front() == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    const timeval timeout{kPatience.count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  }
  ~Manager() {
    for (const char* variable : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(variable);
    close(fd_);
    if (name_.front() == '/') unlink(name_.c_str());
  }

  std::string message() {
    char buffer[512];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    return size < 0 ? "nothing" : std::string(buffer, static_cast<size_t>(size));
  }
  bool hasMessage() {
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  }

 private:
  std::string name_;
  int fd_;
};

std::string abstractName() { return "@chorus-test-" + std::to_string(getpid()); }

TEST(ServiceManagerTest, HearsLoadingReadyAndStopping) {
  const std::string path = testing::TempDir() + "notify-" + std::to_string(getpid());
  for (const std::string& name : {abstractName(), path}) {
    Manager manager(name);
    ServiceManager service;
    EXPECT_TRUE(service.isListening());
    service.loading();
    EXPECT_EQ(manager.message(), "STATUS=Loading the model\nEXTEND_TIMEOUT_USEC=30000000");
    service.ready("Serving at http://127.0.0.1:1");
    EXPECT_EQ(manager.message(), "READY=1\nSTATUS=Serving at http://127.0.0.1:1");
    service.alive();
    EXPECT_FALSE(manager.hasMessage()) << "no watchdog is configured";
    const auto now = [] {
      return std::chrono::duration_cast<std::chrono::microseconds>(ServiceManager::Clock::now().time_since_epoch());
    };
    const auto before = now();
    service.reloading();
    const auto after = now();
    const std::string start = "RELOADING=1\nMONOTONIC_USEC=", reload = manager.message();
    ASSERT_EQ(reload.substr(0, start.size()), start);
    const int64_t stated = std::stoll(reload.substr(start.size()));
    EXPECT_LE(before.count(), stated);
    EXPECT_LE(stated, after.count());
    service.stopping("Draining", milliseconds(1500));
    EXPECT_EQ(manager.message(), "STOPPING=1\nSTATUS=Draining\nEXTEND_TIMEOUT_USEC=1500000");
  }
}

TEST(ServiceManagerTest, GetsASignOfLifeInEachHalfOfTheInterval) {
  Manager manager(abstractName());
  setenv("WATCHDOG_USEC", "40000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  ServiceManager::Clock::time_point now{};
  ServiceManager service([&] { return now; });
  service.ready("");
  manager.message();
  service.alive();
  EXPECT_FALSE(manager.hasMessage()) << "too early";
  for (int i = 0; i < 3; ++i) {
    now += milliseconds(19);
    service.alive();
    EXPECT_FALSE(manager.hasMessage()) << "too early";
    now += milliseconds(1);
    service.alive();
    service.alive();
    EXPECT_EQ(manager.message(), "WATCHDOG=1");
    EXPECT_FALSE(manager.hasMessage());
  }
}

TEST(ServiceManagerTest, TheWatchdogOfAnotherProcessIsNotOurs) {
  Manager manager(abstractName());
  setenv("WATCHDOG_USEC", "1", 1);
  setenv("WATCHDOG_PID", "1", 1);
  ServiceManager service;
  service.alive();
  EXPECT_FALSE(manager.hasMessage());
  setenv("WATCHDOG_PID", "", 1);
  setenv("WATCHDOG_USEC", "many", 1);
  ServiceManager other;
  other.alive();
  EXPECT_FALSE(manager.hasMessage());
}

TEST(ServiceManagerTest, WithoutAManagerNothingHappens) {
  for (const char* name : {"", "relative", "@", "vsock:1:2"}) {
    setenv("NOTIFY_SOCKET", name, 1);
    ServiceManager service;
    EXPECT_FALSE(service.isListening()) << name;
    service.loading();
    service.ready("");
    service.reloading();
    service.alive();
    service.stopping("", milliseconds(0));
  }
  setenv("NOTIFY_SOCKET", ("/" + std::string(200, 'x')).c_str(), 1);
  EXPECT_FALSE(ServiceManager().isListening());
  setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
  ServiceManager().ready("");
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace chorus::server
