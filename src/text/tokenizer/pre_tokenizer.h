// The "pre_tokenizer" of a tokenizer.json: normalized text to the words that the model sees.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace chorus {

struct Piece {
  std::string text;       // valid UTF-8, never empty after a pre-tokenizer
  bool at_start = false;  // begins where the whole input begins
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(std::vector<Piece>& pieces) const = 0;
};

// json null gives null. Throws Error(kUnsupported) that names source and a component that is not known.
std::unique_ptr<const PreTokenizer> makePreTokenizer(const Json& json, const std::string& source);

}  // namespace chorus
