// The version of the contents of engine directories.
#pragma once

#include <cstdint>

namespace chorus {

// Increase it with every change after which `convert` or `build` makes a different result from the same source: other
// bytes in a rank file, other tensors, or another meaning of a field of pretrained_config. Keep it for all other
// changes, so that a new version of the program continues to use existing engines. An engine of another version is
// refused at load, and the server's cache builds a new one beside it. tests/packing_version_test.cc fails if the bytes
// of packed models change and this number does not.
inline constexpr int32_t kPackingVersion = 1;

}  // namespace chorus
