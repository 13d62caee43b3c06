// Alone in its file, so that a program with a list of its own links without this one.
#include "models/architecture.h"

namespace chorus {

std::span<const Architecture> knownArchitectures() {
  static const std::vector<Architecture> kKnown = builtInArchitectures();
  return kKnown;
}

}  // namespace chorus
