// Processor time of the calling thread: unlike a clock's, it does not count while a busy machine runs other threads.
#pragma once

#include <cstdint>
#include <ctime>

namespace chorus {

inline uint64_t threadNanoseconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace chorus
