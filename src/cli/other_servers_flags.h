// Flags of other servers that chorus serve does not have, and what to use instead. They are only named in the error for
// an unknown flag.
#pragma once

#include <span>
#include <string_view>

namespace chorus {

struct OtherServersFlag {
  std::string_view name;    // as "max_model_len", or "-c"
  std::string_view advice;  // goes on after "no flag of chorus serve; "
};

std::span<const OtherServersFlag> otherServersFlags();

// The advice for a flag of another server; empty if there is none. name: without the two dashes of a long flag, but
// with the dash of a short one. Dashes and underscores within it are the same.
std::string_view adviceForOtherServersFlag(std::string_view name);

}  // namespace chorus
