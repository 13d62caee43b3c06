// The list of a program that has one architecture more than Chorus comes with: this definition takes the place of
// src/models/known_architectures.cc when a program is linked.
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
