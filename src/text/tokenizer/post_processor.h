// The "post_processor" of a tokenizer.json: which special tokens surround a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace chorus {

struct SpecialTokens {
  std::vector<int32_t> before, after;
};

// json null gives none, and so does a component that only moves offsets. Throws Error(kUnsupported) that names source
// and a component that is not known.
SpecialTokens readPostProcessor(const Json& json, const std::string& source);

}  // namespace chorus
