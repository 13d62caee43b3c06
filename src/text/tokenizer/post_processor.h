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

// Returns no tokens for a null json, or for a component that only moves offsets. Throws Error(kUnsupported), naming
// source and component, for an unknown component.
SpecialTokens readPostProcessor(const Json& json, const std::string& source);

}  // namespace chorus
