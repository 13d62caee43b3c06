// Parses arbitrary bytes as a SentencePiece model.
// parses: src/formats/sentencepiece_model.cc
#include "base/error.h"
#include "formats/sentencepiece_model.h"
#include "fuzz/fuzz_target.h"

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  try {
    const auto model = chorus::parseSentencePieceModel(std::as_bytes(std::span(data, size)), "fuzz");
    size_t bytes = model.precompiled_charsmap.size();
    for (const auto& piece : model.pieces) bytes += piece.text.size();
    if (model.pieces.empty() || bytes > size) __builtin_trap();
  } catch (const chorus::Error&) {
  }
}
