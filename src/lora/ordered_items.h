// Reads the objects of adapter_config.json whose key order matters as lists.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace chorus {

// The items of the object `field` of the top-level object, in document order. A key that appears twice keeps its first
// position and takes its last value; a value that is a list or an object becomes null. Empty when the field is missing
// or null. Throws what parseJson throws, and Error(kInvalidArgument) when the field is not an object or has more than
// `most` items. nlohmann's ordered documents are not used because they take quadratic time.
std::vector<std::pair<std::string, Json>> orderedItems(std::string_view text, std::string_view field, size_t most,
                                                       std::string_view source, const JsonLimits& limits);

}  // namespace chorus
