// Converts a SentencePiece model to the tokenizer.json that Hugging Face's converter would write for it.
#pragma once

#include <string>

#include "base/json.h"
#include "base/work_meter.h"
#include "formats/sentencepiece_model.h"

namespace chorus {

// config: tokenizer_config.json (null: none). Its "legacy", "add_prefix_space", "add_bos_token" and "add_eos_token" are
// used; names of the model's special tokens that it lacks are added to it. Supports byte pair and unigram models;
// throws kUnsupported for others. Charges the meter for finding the merges, and throws what the meter throws.
//
// Leading space of a text:
// - Unless "legacy" is false, one space is added in any case, as SentencePiece does. The ids are then SentencePiece's
//   own, except that user-defined symbols end a word, as in Hugging Face's tokenizers.
// - If "legacy" is false, a space is added only if the text begins without one, and not after a special token.
Json importSentencePiece(const SentencePieceModel& model, Json& config, const std::string& source, WorkMeter& meter);

}  // namespace chorus
