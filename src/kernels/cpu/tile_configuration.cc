#include "kernels/cpu/tile_configuration.h"

namespace chorus {

#if defined(__x86_64__)

void TileConfiguration::load(const void* palette) {
  struct Bytes {
    char bytes[64];
  };
  __asm__ volatile("ldtilecfg %0" ::"m"(*static_cast<const Bytes*>(palette)));
  palette_ = palette;
}

void TileConfiguration::release() { __asm__ volatile("tilerelease"); }

#else  // no kernel calls use()

void TileConfiguration::load(const void*) {}
void TileConfiguration::release() {}

#endif

}  // namespace chorus
