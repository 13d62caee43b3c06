// errorOf() returns the message of the Error that a call throws. Only tests use it.
#pragma once

#include <string>

#include "base/error.h"

namespace chorus {

// what() of the Error that f throws; empty when f throws none. Other exceptions propagate.
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
