// What the program's exit status says about an error, so that whoever started it knows whether to start it again.
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
// Of any exception that ends a command: errors of the command line, Errors, and the standard library's exceptions.
ExitCode exitCodeOf(const std::exception& error);

}  // namespace chorus
