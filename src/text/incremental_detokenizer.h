// Streaming detokenizer: turns token ids into text, one id at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {

// One instance per generated sequence. The concatenated results of feed and flush equal Tokenizer::decode of all ids.
// Each result is valid UTF-8 and contains whole characters only.
class IncrementalDetokenizer {
 public:
  // meter: see DecodeStream.
  IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         WorkMeter* meter = nullptr);

  // Returns the text that this id completes; often empty.
  std::string feed(int32_t id);
  // Call after the last id: returns the text that was held back, with U+FFFD for bytes of incomplete characters.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeStream stream_;
  bool skip_special_tokens_;
};

}  // namespace chorus
