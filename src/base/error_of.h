// For tests: what a call's refusal says.
#pragma once

#include <string>

#include "base/error.h"

namespace chorus {

// The line of the Error that f throws, empty when it throws none. Other exceptions pass.
template <typename F>
std::string errorOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace chorus
