// Several adapters that act as one.
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

// Why the adapter can't be a term of a composition, as the end of a sentence about it; "" where it can.
std::string compositionRefusal(const PreparedAdapter& adapter);

// The sum of weight * scale * B A over the terms, in their order: PEFT's add_weighted_adapter(combination_type="cat").
// No weights are copied: the result keeps the terms' adapters alive and takes no device memory. content_hash follows
// from the terms' hashes and weights. terms: at least one, of one rank group, none of them refused.
std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms);

// The content_hash of such a composition.
std::string composedHash(std::span<const WeightedAdapter> terms);

}  // namespace chorus
