// Streaming detokenizer: turns token ids into text, one id at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {

// One instance per generated sequence. The concatenated results of feed and flush equal Tokenizer::decode of all ids,
// or, if the sequence goes on after other text, what they add to it. Each result is valid UTF-8 and contains whole
// characters only.
class IncrementalDetokenizer {
 public:
  // meter: see DecodeStream. before: the ids that the sequence continues. Many decoders drop a space at the beginning
  // of a text, which is kept if one of these ids has text.
  IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         WorkMeter* meter = nullptr, std::span<const int32_t> before = {});

  // Returns the text that this id completes; often empty.
  std::string feed(int32_t id);
  // Call after the last id: returns the text that was held back, with U+FFFD for bytes of incomplete characters.
  std::string flush();

 private:
  // The id's text for the decoder; null: it has none.
  const Utf8Text* textOf(int32_t id) const;
  std::string added(std::string text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeStream stream_;
  bool skip_special_tokens_;
  size_t not_added_ = 0;  // bytes of text before the sequence that the decoder still holds back
};

}  // namespace chorus
