// The "post_processor" of a tokenizer.json: which special tokens surround a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace chorus {

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual void addSpecialTokens(std::vector<int32_t>& ids) const = 0;
};

// json null gives null, and so does a component that only moves offsets. Throws Error(kUnsupported) that names source
// and a component that is not known.
std::unique_ptr<const PostProcessor> makePostProcessor(const Json& json, const std::string& source);

}  // namespace chorus
