// Writes a whole text to standard output.
#pragma once

#include <cstdio>
#include <string>

namespace chorus {

inline void printText(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace chorus
