// Shared by the kernel benchmarks: one backend, chosen by CHORUS_ISA and CHORUS_THREADS.
#pragma once

#include <cstdlib>

#include "base/aligned_buffer.h"
#include "kernels/backend.h"

namespace chorus::bench {

inline Isa isa() {
  const char* name = std::getenv("CHORUS_ISA");
  return name == nullptr ? availableIsas().back() : isaFromName(name).value();
}
inline int threads() {
  const char* threads = std::getenv("CHORUS_THREADS");
  return threads == nullptr ? availableCores() : std::atoi(threads);
}
inline Backend& backend() {
  static const auto instance = createBackend({.name = "cpu", .threads = threads(), .isa = isa()});
  return *instance;
}

}  // namespace chorus::bench
