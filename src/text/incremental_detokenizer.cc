#include "text/incremental_detokenizer.h"

#include <algorithm>

#include "text/utf8_text.h"

namespace chorus {

IncrementalDetokenizer::IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                                               WorkMeter* meter, std::span<const int32_t> before)
    : tokenizer_(std::move(tokenizer)),
      stream_(tokenizer_->decoder(), meter),
      skip_special_tokens_(skip_special_tokens) {
  if (std::ranges::none_of(before, [&](int32_t id) { return textOf(id) != nullptr; })) return;
  // A letter stands for the text before: decoders only need to know that there is some, and no byte of an incomplete
  // character at its end may become a part of this sequence.
  const Utf8View letter = *Utf8View::check("a");
  if (stream_.feed(letter).take().empty()) not_added_ = letter.size();
}

const Utf8Text* IncrementalDetokenizer::textOf(int32_t id) const {
  return skip_special_tokens_ && tokenizer_->isSpecial(id) ? nullptr : tokenizer_->decoderText(id);
}

std::string IncrementalDetokenizer::added(std::string text) {
  const size_t before = std::min(not_added_, text.size());
  not_added_ -= before;
  return before == 0 ? std::move(text) : text.substr(before);
}

std::string IncrementalDetokenizer::feed(int32_t id) {
  const Utf8Text* token = textOf(id);
  if (token == nullptr) return {};
  return added(stream_.feed(*token).take());
}

std::string IncrementalDetokenizer::flush() { return added(stream_.flush().take()); }

}  // namespace chorus
