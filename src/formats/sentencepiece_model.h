// SentencePiece's .model files (sentencepiece_model.proto): the pieces and the training options that a tokenizer needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

struct SentencePiece {
  enum class Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  std::string text;  // not empty; UTF-8 in a valid model, but not checked
  float score = 0;
  Type type = Type::kNormal;
};

// Fields that the file leaves out have the defaults of the format.
struct SentencePieceModel {
  enum class Kind { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  std::vector<SentencePiece> pieces;  // a piece's index is its token id
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  int32_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;  // negative: the model has none
  std::string precompiled_charsmap;                         // the normalizer's table; empty: text is unchanged
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Throws Error(kCorrupt) for bytes that are not such a message, for no pieces or more than 2^21, and for a piece that
// is empty or longer than 4096 bytes.
SentencePieceModel parseSentencePieceModel(std::span<const std::byte> bytes, std::string_view source);

}  // namespace chorus
