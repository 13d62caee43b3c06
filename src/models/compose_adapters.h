// Combines several adapters into one.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/adapter_parts.h"

namespace chorus {

struct WeightedAdapter {
  std::shared_ptr<const PreparedAdapter> adapter;
  float weight = 1.0f;  // finite
};

// The reason why the adapter can't be a term of a composition, as the end of a sentence about the adapter; "" if it
// can.
std::string compositionRefusal(const PreparedAdapter& adapter);

// Composes an adapter whose products are the sums of weight * scale * B A over the terms, in the order of the terms,
// like PEFT's add_weighted_adapter(combination_type="cat"). No weights are copied: the result keeps the terms' adapters
// alive and takes no device memory. Its content_hash is composedHash(terms). terms: at least one, all of one rank
// group, each with an empty compositionRefusal().
std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms);

// The content_hash of the composition of these terms.
std::string composedHash(std::span<const WeightedAdapter> terms);

}  // namespace chorus
