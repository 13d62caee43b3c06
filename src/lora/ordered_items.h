// The objects of adapter_config.json whose order counts, as lists.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace chorus {

// The items of the object `field` of a document's top object, in the document's order: of a key that appears twice the
// first place and the last value; a value that is a list or an object is null here. Empty when the field is missing or
// null. nlohmann's ordered documents take quadratic time for this. Throws what parseJson throws, and
// Error(kInvalidArgument) when the field is something else than an object, or one of more than `most` items.
std::vector<std::pair<std::string, Json>> orderedItems(std::string_view text, std::string_view field, size_t most,
                                                       std::string_view source, const JsonLimits& limits);

}  // namespace chorus
