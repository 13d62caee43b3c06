// Combines several adapters into one, on one rank.
#pragma once

#include <memory>
#include <span>

#include "models/adapter_parts.h"

namespace chorus {

// One term of a composition: a rank's share of an adapter, and the adapter's weight.
struct WeightedParts {
  std::shared_ptr<const AdapterParts> parts;
  float weight = 1.0f;  // finite
};

// The reason why an adapter can't be a term of a composition, as far as one rank's share shows it: the end of a
// sentence about the adapter; "" if there is none.
const char* compositionRefusal(const AdapterParts& parts);

// Composes an adapter whose products are the sums of weight * scale * B A over the terms, in the order of the terms,
// like PEFT's add_weighted_adapter(combination_type="cat"). No weights are copied: the result keeps the terms' parts
// alive and takes no device memory. terms: at least one, all of one rank, each with an empty compositionRefusal().
std::shared_ptr<const AdapterParts> composeParts(std::span<const WeightedParts> terms);

}  // namespace chorus
