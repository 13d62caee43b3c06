// knownArchitectures() has a file of its own, so that a program can define another list and the linker takes that one.
#include "models/architecture.h"

namespace chorus {

std::span<const Architecture> knownArchitectures() {
  static const std::vector<Architecture> kKnown = builtInArchitectures();
  return kKnown;
}

}  // namespace chorus
