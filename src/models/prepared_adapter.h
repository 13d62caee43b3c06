// An adapter that is ready for the steps of a rank group, as the group's caller sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "models/adapter_id.h"

namespace chorus {

// Immutable; all steps that use the adapter share it. It holds no weights: every rank keeps its own share under the id.
struct PreparedAdapter {
  AdapterId id{};
  size_t bytes = 0;      // device memory on all ranks
  int64_t elements = 0;  // adapterElements() of the whole adapter
  // Numbers of tokens that have logits and that the input may contain; 0: the model's number.
  int64_t vocab_size = 0;
  int64_t input_vocab_size = 0;
  std::string content_hash;
  // The reason why the adapter can't be a term of a composition, as the end of a sentence about the adapter; "" if it
  // can.
  std::string composition_refusal;
  // The ranks drop their shares when the last copy of this pointer ends.
  std::shared_ptr<const void> shares;
};

// One term of a composition of adapters.
struct WeightedAdapter {
  std::shared_ptr<const PreparedAdapter> adapter;
  float weight = 1.0f;  // finite
};

// The content_hash of the composition of these terms.
std::string composedHash(std::span<const WeightedAdapter> terms);

}  // namespace chorus
