// Decoders of whole tokens: WordPiece, CTC and BPEDecoder.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "text/tokenizer/decoder.h"

namespace chorus {

using DecoderFactory = std::function<std::unique_ptr<DecoderStage>()>;

// Returns null for a type that is none of these. Throws Error that names source and the field. bytes: increased by the
// memory that the factory holds.
DecoderFactory makeWordDecoder(const std::string& type, const Json& json, const std::string& source, size_t& bytes);

}  // namespace chorus
