#include "cli/exit_code.h"

#include <CLI/Error.hpp>

namespace chorus {

ExitCode exitCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCorrupt:
    case ErrorCode::kTooLarge:
      return ExitCode::kRefused;
    case ErrorCode::kExhausted:
    case ErrorCode::kBusy:
    case ErrorCode::kConflict:
    case ErrorCode::kInternal:
      return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

ExitCode exitCodeOf(const std::exception& error) {
  if (dynamic_cast<const CLI::ParseError*>(&error) != nullptr) return ExitCode::kRefused;
  return exitCodeOf(errorCodeOf(error));
}

}  // namespace chorus
