// Makes a program's allocations fail on request. SIGUSR1 makes every nth one fail, with n from CHORUS_FAIL_EVERY (97),
// and each SIGUSR1 begins one allocation later than the one before. SIGUSR2 lets all succeed again and prints how many
// failed.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "support/malloc_hook.h"

namespace {

alignas(chorus::test::FailingAllocations) unsigned char g_storage[sizeof(chorus::test::FailingAllocations)];
chorus::test::FailingAllocations* g_failing = nullptr;
uint64_t g_every = 97, g_skip = 0;

void disarm() {
  if (g_failing == nullptr) return;
  g_failing->~FailingAllocations();
  g_failing = nullptr;
}

// The handlers only use atomic stores and write(), which a signal handler may call.
void onArm(int) {
  disarm();
  g_failing = new (g_storage) chorus::test::FailingAllocations(g_every, g_skip++ % g_every);
}

void onDisarm(int) {
  const uint64_t failures = g_failing != nullptr ? g_failing->failures() : 0;
  disarm();
  char text[32];
  char* at = text + sizeof text;
  *--at = '\n';
  uint64_t rest = failures;
  do *--at = static_cast<char>('0' + rest % 10);
  while ((rest /= 10) > 0);
  constexpr char kLabel[] = "failed allocations: ";
  if (write(STDOUT_FILENO, kLabel, sizeof kLabel - 1) < 0) return;
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, at, static_cast<size_t>(text + sizeof text - at));
}

[[maybe_unused]] const bool g_installed = [] {
  if (const char* every = std::getenv("CHORUS_FAIL_EVERY")) g_every = std::strtoull(every, nullptr, 10);
  if (g_every == 0) g_every = 97;
  std::signal(SIGUSR1, onArm);
  std::signal(SIGUSR2, onDisarm);
  return true;
}();

}  // namespace
