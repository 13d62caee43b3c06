// The "normalizer" of a tokenizer.json: text to text, before anything is split.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // text and result are valid UTF-8.
  virtual std::string normalize(std::string_view text) const = 0;
};

// json null gives null. Throws Error(kUnsupported) that names source and a component that is not known.
std::unique_ptr<const Normalizer> makeNormalizer(const Json& json, const std::string& source);

}  // namespace chorus
