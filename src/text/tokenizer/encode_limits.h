// Limit on the number of tokens of a text.
#pragma once

#include <cstddef>
#include <limits>

#include "base/error.h"

namespace chorus {

struct EncodeLimits {
  // Includes special tokens. Encoding stops soon after the first token beyond the limit.
  size_t max_tokens = std::numeric_limits<size_t>::max();
};

// Thrown if a text has more tokens than EncodeLimits allows.
class TooManyTokens : public Error {
 public:
  explicit TooManyTokens(size_t max_tokens)
      : Error(ErrorCode::kInvalidArgument, fmt::format("the text has more than {} tokens", max_tokens)),
        max_tokens_(max_tokens) {}
  size_t maxTokens() const { return max_tokens_; }

 private:
  size_t max_tokens_;
};

}  // namespace chorus
