// A server in which every 97th allocation fails answers with errors and goes on. The server is the chorus program
// linked with tests/support/malloc_hook.cc; signals make its allocations fail while requests run.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/malloc_hook.h"
#include "support/test_paths.h"

extern char** environ;

namespace chorus::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string textOf(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// How arm_by_signal.cc begins its lines.
constexpr std::string_view kReport = "failed allocations: ";

// `chorus serve` on the demo model in its own process, which is killed with this object.
class FailingServer {
 public:
  FailingServer() {
    std::string pattern = (fs::temp_directory_path() / "chorus-allocation-XXXXXX").string();
    work_ = mkdtemp(pattern.data());
    const fs::path demo = test::sourceDir() / "examples/demo";
    std::vector<std::string> arguments = {CHORUS_FAILING_BINARY,
                                          "serve",
                                          (demo / "base").string(),
                                          "--lora_dir",
                                          (demo / "adapters").string(),
                                          "--cache_dir",
                                          (work_ / "cache").string(),
                                          "--port",
                                          "0",
                                          "--threads",
                                          "1",
                                          "--kv_cache_max_tokens",
                                          "8192"};
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string out = (work_ / "out").string(), errors = (work_ / "errors").string();
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (posix_spawn(&process_, pointers[0], &actions, nullptr, pointers.data(), environ) != 0) process_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~FailingServer() {
    if (process_ > 0 && runs()) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    fs::remove_all(work_);
  }

  bool runs() {
    if (process_ <= 0) return false;
    if (::waitpid(process_, &status_, WNOHANG) == process_) process_ = -1;
    return process_ > 0;
  }
  std::string log() const { return textOf(work_ / "errors"); }
  std::string out() const { return textOf(work_ / "out"); }
  void send(int signal) const { ::kill(process_, signal); }
  // Lets allocations succeed again. Returns when they do, or if the server ended.
  void letSucceed() {
    const size_t before = reports();
    send(SIGUSR2);
    while (runs() && reports() == before) std::this_thread::sleep_for(1ms);
  }

  // Returns false if the server ended or was not ready in time.
  bool waitReady() {
    for (int i = 0; i < 1200 && runs(); ++i, std::this_thread::sleep_for(100ms)) {
      const std::string said = out();
      const size_t at = said.find("listening on http://127.0.0.1:");
      if (at == std::string::npos || said.find('\n', at) == std::string::npos) continue;
      port_ = static_cast<uint16_t>(std::stoi(said.substr(said.rfind(':', said.find('\n', at)) + 1)));
      if (statusOf(ask("GET", "/v1/health/ready", "")) == 200) return true;
    }
    return false;
  }

  // The whole answer; empty if the connection ended without one; "hangs" if nothing comes for half a minute.
  std::string ask(const std::string& method, const std::string& path, const std::string& body) const {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string answer;
    if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      const std::string request = method + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" +
                                  "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                                  "\r\n\r\n" + body;
      ::send(client, request.data(), request.size(), MSG_NOSIGNAL);
      std::array<char, 4096> buffer{};
      ssize_t n = 0;
      while ((n = ::recv(client, buffer.data(), buffer.size(), 0)) > 0)
        answer.append(buffer.data(), static_cast<size_t>(n));
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) answer = "hangs";
    }
    ::close(client);
    return answer;
  }

  static int statusOf(const std::string& answer) {
    constexpr std::string_view kHead = "HTTP/1.1 ";
    return answer.starts_with(kHead) ? std::atoi(answer.c_str() + kHead.size()) : 0;
  }

  // Sends SIGTERM. Returns the exit status, or -1 if the server does not end within a minute or is ended by a signal.
  int end() {
    send(SIGTERM);
    for (int i = 0; i < 600; ++i, std::this_thread::sleep_for(100ms)) {
      if (!runs()) return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
    }
    return -1;
  }

 private:
  // Lines about failed allocations, each of which the server prints when allocations succeed again.
  size_t reports() const {
    const std::string said = out();
    size_t count = 0;
    for (size_t at = 0; (at = said.find(kReport, at)) != std::string::npos; at += kReport.size()) {
      count += said.find('\n', at) != std::string::npos ? 1 : 0;
    }
    return count;
  }

  fs::path work_;
  pid_t process_ = -1;
  int status_ = 0;
  uint16_t port_ = 0;
};

struct Ask {
  const char* path;
  const char* body;      // null: a GET request
  bool compared = true;  // the text of the answer is the same each time

  std::string send(const FailingServer& server) const {
    return server.ask(body == nullptr ? "GET" : "POST", path, body == nullptr ? "" : body);
  }
};

constexpr Ask kAsks[] = {
    {"/v1/completions", R"({"model": "base", "prompt": "seven cats", "max_tokens": 8, "temperature": 0})"},
    {"/v1/chat/completions",
     R"({"model": "roman", "messages": [{"role": "user", "content": "seven cats and five dogs"}], "max_tokens": 8,)"
     R"( "temperature": 0})"},
    {"/v1/completions",
     R"({"model": "sum", "prompt": ["one", "two"], "max_tokens": 6, "n": 2, "temperature": 1, "seed": 3,)"
     R"( "logprobs": 3, "stream": true, "no_repeat_ngram_size": 3, "stop": ["zzz"]})"},
    {"/v1/completions",
     R"({"model": "base", "adapters": [{"name": "shout", "weight": 0.5}, {"name": "german", "weight": 0.5}],)"
     R"( "prompt": "five dogs", "max_tokens": 4, "temperature": 0})"},
    {"/v1/responses",
     R"({"model": "shout", "input": "seven cats", "max_output_tokens": 5, "temperature": 0, "stream": true,)"
     R"( "include": ["message.output_text.logprobs"], "top_logprobs": 3})",
     false},
    {"/v1/messages",
     R"({"model": "base", "messages": [{"role": "user", "content": "five dogs"}], "max_tokens": 5, "temperature": 0})",
     false},
    {"/tokenize", R"({"model": "base", "prompt": "seven cats"})", false},
    {"/v1/models", nullptr, false},
    {"/metrics", nullptr, false},
};

TEST(AllocationFailure, EveryNinetySeventhAllocationOfARequestEndsInAnErrorAnswer) {
  if (!FailingAllocations::supported()) return;  // a sanitizer's allocator cannot fail on request
  FailingServer server;
  ASSERT_TRUE(server.waitReady()) << server.out() << server.log();
  std::array<std::string, std::size(kAsks)> before;
  for (size_t i = 0; i < std::size(kAsks); ++i) {
    before[i] = kAsks[i].send(server);
    ASSERT_EQ(FailingServer::statusOf(before[i]), 200) << before[i];
  }

  std::map<int, int> statuses;
  constexpr int kRounds = 97;  // one for each allocation at which the count can begin
  for (int round = 0; round < kRounds; ++round) {
    server.send(SIGUSR1);
    for (const Ask& ask : kAsks) {
      const std::string answer = ask.send(server);
      ASSERT_TRUE(server.runs()) << "round " << round << ", " << ask.path << ": the server ended\n" << server.log();
      ASSERT_NE(answer, "hangs") << "round " << round << ", " << ask.path;
      ++statuses[FailingServer::statusOf(answer)];
    }
    server.letSucceed();
  }
  std::string counts;
  for (const auto& [status, count] : statuses) counts += std::to_string(status) + ": " + std::to_string(count) + "  ";
  RecordProperty("statuses", counts);
  std::printf("statuses: %s\n", counts.c_str());

  // Allocations succeed again: every model gives the same answers as before.
  const auto contentOf = [](const std::string& answer) {
    const size_t at = answer.find("\"text\":");
    const size_t chat = answer.find("\"content\":");
    const size_t from = std::min(at, chat);
    return from == std::string::npos ? answer : answer.substr(from, answer.find("\"logprobs\"", from) - from);
  };
  for (size_t i = 0; i < std::size(kAsks); ++i) {
    const std::string after = kAsks[i].send(server);
    ASSERT_EQ(FailingServer::statusOf(after), 200) << after << server.log();
    if (kAsks[i].compared) {
      EXPECT_EQ(contentOf(after), contentOf(before[i]));
    }
  }
  EXPECT_EQ(server.end(), 0) << server.log();
  // Most failures are absorbed (src/base/memory_reserve.h), so the program itself reports how many there were.
  int64_t failures = 0;
  const std::string said = server.out();
  for (size_t at = 0; (at = said.find(kReport, at)) != std::string::npos; at += kReport.size()) {
    failures += std::atoll(said.c_str() + at + kReport.size());
  }
  EXPECT_GT(failures, 10 * kRounds) << counts;
  EXPECT_LT(statuses[0], kRounds / 2) << "connections that end without an answer are few: " << counts;
}

}  // namespace
}  // namespace chorus::test
