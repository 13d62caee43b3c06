// A sentencepiece model as the tokenizer.json that Hugging Face's converter would write for it.
#pragma once

#include <string>

#include "base/json.h"
#include "formats/sentencepiece_model.h"

namespace chorus {

// config is tokenizer_config.json (null: none), of which "legacy", "add_prefix_space", "add_bos_token" and
// "add_eos_token" count here; the names of the model's special tokens that it lacks are added to it. Byte pair and
// unigram models; kUnsupported for others.
//
// Without "legacy": false the text gets its leading space as sentencepiece itself does it: one more, whatever the text
// begins with; its ids are then sentencepiece's own, but that user-defined symbols end a word, as Hugging Face has it.
// With it, only a text that begins without a space, and not after a special token.
Json importSentencePiece(const SentencePieceModel& model, Json& config, const std::string& source);

}  // namespace chorus
