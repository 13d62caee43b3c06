// Git LFS pointers: texts of about 130 bytes that a checkout without Git LFS has in place of large files.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace chorus {

// Every pointer is shorter.
inline constexpr size_t kGitLfsPointerBytes = 1024;

// Throws Error(kCorrupt) that names the source if the bytes begin like a pointer. A parser calls it before its own
// error about bytes that are not of its format.
void refuseGitLfsPointer(std::string_view text, std::string_view source);
void refuseGitLfsPointer(std::span<const std::byte> bytes, std::string_view source);

}  // namespace chorus
