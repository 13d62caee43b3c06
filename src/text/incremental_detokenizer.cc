#include "text/incremental_detokenizer.h"

namespace chorus {

IncrementalDetokenizer::IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                                               WorkMeter* meter)
    : tokenizer_(std::move(tokenizer)),
      stream_(tokenizer_->decoder(), meter),
      skip_special_tokens_(skip_special_tokens) {}

std::string IncrementalDetokenizer::feed(int32_t id) {
  const Utf8Text* token = tokenizer_->decoderText(id);
  if (token == nullptr || (skip_special_tokens_ && tokenizer_->isSpecial(id))) return {};
  return stream_.feed(*token).take();
}

std::string IncrementalDetokenizer::flush() { return stream_.flush().take(); }

}  // namespace chorus
