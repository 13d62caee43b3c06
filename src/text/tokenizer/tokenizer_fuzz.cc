// The bytes are a tokenizer.json. Whatever it says, it loads or is refused, and what loads encodes and decodes.
// parses: src/text/tokenizer/tokenizer_schema.cc src/text/tokenizer/tokenizer.cc
// parses: src/text/tokenizer/bpe_model.cc src/text/tokenizer/added_vocabulary.cc
// parses: src/text/tokenizer/normalizer.cc src/text/tokenizer/pre_tokenizer.cc
// parses: src/text/tokenizer/post_processor.cc src/text/tokenizer/decoder.cc
// parses: src/text/tokenizer/byte_level.cc src/text/tokenizer/text_pattern.cc
// parses: src/text/tokenizer/known_splits.cc
// parses: src/text/incremental_detokenizer.cc
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  try {
    const Json document = parseTokenizerJson({reinterpret_cast<const char*>(data), size}, "input");
    const auto tokenizer = Tokenizer::fromJson(document, document, "input");
    for (const char* text : {"", "Hello, world's  best\n\n text 123", "\xE6\x97\xA5\xFF\xF0\x9F\x98\x80 e\xCC\x81",
                             "<s>hi</s> <|endoftext|>", "cut \xE6\x97", "\xF0\x9F\x98"}) {
      const auto ids = tokenizer->encode(text, true);
      const std::string whole = tokenizer->decode(ids, false);
      IncrementalDetokenizer detokenizer(tokenizer, false);
      std::string pieces;
      for (const int32_t id : ids) pieces += detokenizer.feed(id);
      if (pieces + detokenizer.flush() != whole) __builtin_trap();
    }
    std::vector<int32_t> every = {-1, INT32_MIN, INT32_MAX};
    for (int32_t id = 0; id <= std::min(tokenizer->vocabSize(), 1000); ++id) every.push_back(id);
    tokenizer->decode(every, true);
  } catch (const Error&) {
  }
  return 0;
}
