// The name of an adapter in the commands and steps of a rank group.
#pragma once

#include <cstdint>

namespace chorus {

// Every rank knows its share of an adapter by this number. A rank group never uses a number twice.
enum class AdapterId : uint64_t {};

}  // namespace chorus
