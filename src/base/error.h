// The one exception type for user and data faults. Programmer errors are asserts, never Errors.
#pragma once

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace chorus {

enum class ErrorCode {
  kInvalidArgument,  // a flag, field or value that the caller must change
  kNotFound,         // a file, tensor, model or adapter that is not there
  kUnsupported,      // well-formed, but needs a feature that this build does not have
  kCorrupt,          // input bytes that contradict themselves or violate their format
  kExhausted,        // memory, disk, queue or cache is full; the same call may succeed later
  kBusy,             // other callers use what the call needs; it may succeed when they end
  kTooLarge,         // larger than what was configured for it; the same call never succeeds
  kConflict,         // the object of the call changed during the call; a retry may succeed at once
  kInternal,
};

// what() is one line that names the file, field or flag and says what to do; quoted text is made printable by
// oneLine(). It may contain paths of the server: the HTTP layer strips them before a client sees it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string_view message) : std::runtime_error(oneLine(message)), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The code of an Error; for an exception of the standard library, the closest code.
inline ErrorCode errorCodeOf(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->code();
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) return ErrorCode::kInvalidArgument;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ErrorCode::kExhausted;
  return ErrorCode::kInternal;
}

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace chorus
