// Checks whether an engine can serve a request. Pure functions that run before the request is queued.
#pragma once

#include <optional>

#include "base/error.h"
#include "chorus/request.h"

namespace chorus {

// Maximum number of terms of a LoRA composition.
inline constexpr size_t kMostComposed = 64;

struct RequestLimits {
  int32_t max_input_len = 0;
  int32_t max_seq_len = 0;
  int32_t max_num_tokens = 0;  // per step
  int32_t max_beam_width = 1;
  int32_t vocab_size = 0;
  bool chunked_context = true;
  int32_t added_tokens = 0;  // tokens that an adapter may add to the vocabulary

  // The longest prompt that leaves room for one token.
  int32_t longestPrompt() const { return max_input_len < max_seq_len ? max_input_len : max_seq_len - 1; }
};

// Why a request cannot be served; nullopt if it can. Uses TensorRT-LLM's text if it has one. kInvalidArgument: the
// request must change. kUnsupported: the named field asks for a missing feature; no such field is silently ignored.
// Does not check token ids, see unknownTokenRefusal().
std::optional<Error> refusalOf(const executor::Request& request, const RequestLimits& limits);

// Returns why the token ids in the request are refused; nullopt if they are not. Prompt tokens must be in [0,
// input_vocab_size), tokens that refer to logits in [0, vocab_size). An embeddingBias has vocab_size values, or
// model_vocab_size without the tokens an adapter adds.
std::optional<Error> unknownTokenRefusal(const executor::Request& request, int32_t vocab_size, int32_t input_vocab_size,
                                         int32_t model_vocab_size);

}  // namespace chorus
