// Unpacks raw deflate streams, the compression of zip entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace chorus {

// Unpacks a stream of exactly `size` bytes and calls sink for consecutive pieces of them. Takes about 300 KB of memory,
// whatever the stream unpacks to. Throws Error(kCorrupt) if the stream is damaged, has another size, or bytes follow
// its end. source names the stream in errors.
void inflate(std::span<const std::byte> packed, uint64_t size, std::string_view source,
             FunctionRef<void(std::span<const std::byte>)> sink);

// The first bytes of a stream: `count`, or all of them if the stream has fewer. What follows them is not looked at.
std::vector<std::byte> inflateBeginning(std::span<const std::byte> packed, size_t count, std::string_view source);

}  // namespace chorus
