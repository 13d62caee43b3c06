// Token ids to text one by one, for streaming.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {

// One per generated sequence. The texts of feed and flush, put together, are Tokenizer::decode of all ids; each is
// valid UTF-8 and never a part of a character.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);

  // The text that has become certain with this id; often empty.
  std::string feed(int32_t id);
  // After the last id: what was held back. Bytes that have not become a character are U+FFFD.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeStream stream_;
  bool skip_special_tokens_;
};

}  // namespace chorus
