#include "kernels/cpu/amx_tiles.h"

#if defined(__x86_64__)
namespace chorus::amx {

void configureOnce(const void* palette) {
  static thread_local const void* current = nullptr;
  if (current == palette) return;
  configure(palette);
  current = palette;
}

}  // namespace chorus::amx
#endif
