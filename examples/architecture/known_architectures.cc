// The architectures of a program that has one more than Chorus itself. This definition replaces that of
// src/models/known_architectures.cc at link time.
#include "models/architecture.h"
#include "troubadour.h"

namespace chorus {

std::span<const Architecture> knownArchitectures() {
  static const std::vector<Architecture> kKnown = [] {
    std::vector<Architecture> all = builtInArchitectures();
    all.push_back(example::troubadourArchitecture());
    return all;
  }();
  return kKnown;
}

}  // namespace chorus
