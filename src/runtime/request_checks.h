// Which requests an engine can serve at all: pure checks, made before a request is queued.
#pragma once

#include <optional>
#include <string>

#include "chorus/request.h"

namespace chorus {

struct RequestLimits {
  int32_t max_input_len = 0;
  int32_t max_seq_len = 0;
  int32_t max_num_tokens = 0;  // of a step
  int32_t max_beam_width = 1;
  int32_t vocab_size = 0;
  bool chunked_context = true;

  // The longest prompt that leaves room for one token.
  int32_t longestPrompt() const { return max_input_len < max_seq_len ? max_input_len : max_seq_len - 1; }
};

// The one line that a request is answered with when it cannot be served; TensorRT-LLM's wording where it has
// one. Fields that are not served yet are named, never ignored.
std::optional<std::string> refusalOf(const executor::Request& request, const RequestLimits& limits);

}  // namespace chorus
