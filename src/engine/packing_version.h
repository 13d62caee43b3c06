// The version of what an engine directory holds of a model.
#pragma once

#include <cstdint>

namespace chorus {

// Raise it with every change after which `convert` or `build` makes something else of the same source: other bytes in a
// rank file, other tensors, another meaning of a field of pretrained_config. Leave it for everything else, so that a
// new version of the program goes on with the engines that are there. An engine of another version is refused at load,
// and the server's cache builds a new one beside it. A test (tests/packing_version_test.cc) holds the bytes of packed
// models to this number.
inline constexpr int32_t kPackingVersion = 1;

}  // namespace chorus
