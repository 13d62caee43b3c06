#include "base/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace chorus {

bool amxReported(uint32_t leaf7_edx, uint64_t xcr0) {
  constexpr uint32_t kBf16 = 1u << 22, kTiles = 1u << 24, kInt8 = 1u << 25, kAll = kBf16 | kTiles | kInt8;
  constexpr uint64_t kTileConfig = 1u << 17, kTileData = 1u << 18;
  return (leaf7_edx & kAll) == kAll && (xcr0 & kTileConfig) && (xcr0 & kTileData);
}

bool requestAmx() {
#if defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return true;
  log::warn("the kernel refuses AMX to this process ({}): running without it", std::strerror(errno));
#endif
  return false;
}

bool amxAvailable() {
#if defined(__x86_64__)
  constexpr uint32_t kOsXsave = 1u << 27;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsXsave)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return amxReported(d, uint64_t{high} << 32 | low) && requestAmx();
#else
  return false;
#endif
}

}  // namespace chorus
