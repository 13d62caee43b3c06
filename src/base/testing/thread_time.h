// Processor time, for tests of what something costs. Only tests use it.
#pragma once

#include <chrono>
#include <ctime>

namespace chorus {

// The processor time that the calling thread has taken: other processes, which may take all processors for seconds, do
// not count.
inline std::chrono::nanoseconds threadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace chorus
