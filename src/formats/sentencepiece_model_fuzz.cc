// Arbitrary bytes as a sentencepiece model.
// parses: src/formats/sentencepiece_model.cc
#include "base/error.h"
#include "formats/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto model = chorus::parseSentencePieceModel(std::as_bytes(std::span(data, size)), "fuzz");
    size_t bytes = model.precompiled_charsmap.size();
    for (const auto& piece : model.pieces) bytes += piece.text.size();
    if (model.pieces.empty() || bytes > size) __builtin_trap();
  } catch (const chorus::Error&) {
  }
  return 0;
}
