// The program's exit status for an error, from which a supervisor can decide whether to start the program again.
#pragma once

#include <exception>

#include "base/error.h"

namespace chorus {

enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,  // memory, disk, port or another program: the same command may succeed later
  kRefused = 2  // wrong use, or a file that is not what it should be: the same command is refused again
};

ExitCode exitCodeOf(ErrorCode code);
// Accepts any exception that ends a command: command-line errors, Error, and the standard library's exceptions.
ExitCode exitCodeOf(const std::exception& error);

}  // namespace chorus
