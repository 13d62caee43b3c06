// Which requests an engine can serve at all: pure checks, made before a request is queued.
#pragma once

#include <optional>

#include "base/error.h"
#include "chorus/request.h"

namespace chorus {

// Terms of a LoRA composition.
inline constexpr size_t kMostComposed = 64;

struct RequestLimits {
  int32_t max_input_len = 0;
  int32_t max_seq_len = 0;
  int32_t max_num_tokens = 0;  // of a step
  int32_t max_beam_width = 1;
  int32_t vocab_size = 0;
  bool chunked_context = true;
  int32_t added_tokens = 0;  // that an adapter may have beyond the vocabulary

  // The longest prompt that leaves room for one token.
  int32_t longestPrompt() const { return max_input_len < max_seq_len ? max_input_len : max_seq_len - 1; }
};

// Why a request cannot be served, in TensorRT-LLM's wording where it has one: kInvalidArgument where it must
// change, kUnsupported for what is not served yet, which is named, never ignored. Leaves tokens to the next.
std::optional<Error> refusalOf(const executor::Request& request, const RequestLimits& limits);

// The same for the tokens that it names: logits are of [0, vocab_size), inputs of [0, input_vocab_size). An
// embeddingBias may leave out what an adapter adds to the model's vocabulary.
std::optional<Error> unknownTokenRefusal(const executor::Request& request, int32_t vocab_size, int32_t input_vocab_size,
                                         int32_t model_vocab_size);

}  // namespace chorus
