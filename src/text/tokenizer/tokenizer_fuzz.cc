// Any tokenizer document loads or is refused, and a loaded one encodes and decodes within its limits. Input that begins
// with a brace is a tokenizer.json and its own config; other input is a list of choices from which a document and a
// text are drawn.
// parses: src/text/tokenizer/tokenizer_schema.cc src/text/tokenizer/tokenizer.cc
// parses: src/text/tokenizer/bpe_model.cc src/text/tokenizer/bpe_merges.cc src/text/tokenizer/unigram_model.cc
// parses: src/text/tokenizer/vocabulary.cc src/text/tokenizer/added_vocabulary.cc
// parses: src/text/tokenizer/normalizer.cc src/text/tokenizer/unicode_form.cc
// parses: src/text/tokenizer/precompiled_normalizer.cc src/text/tokenizer/pre_tokenizer.cc
// parses: src/text/tokenizer/post_processor.cc src/text/tokenizer/decoder.cc src/text/tokenizer/encode_work.cc
// parses: src/text/tokenizer/byte_level.cc src/text/tokenizer/text_pattern.cc
// parses: src/text/tokenizer/known_splits.cc src/text/utf8_text.cc
// parses: src/text/tokenizer/word_models.cc src/text/tokenizer/prefix_index.h src/text/tokenizer/word_decoders.cc
// parses: src/text/tokenizer/library_characters.cc
// parses: src/text/incremental_detokenizer.cc
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz/drawn_tokenizer.h"
#include "fuzz/fuzz_target.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_schema.h"

// A drawn document has a table of 4 KB, a vocabulary of bytes, and replacements of 4 KB per byte of input. Every text,
// whatever its length, may use 256 KB of scratch memory and a few milliseconds of work.
// While Oniguruma's stack grows to its limit, the old and the new one take 4 MB (regex_fuzz.cc).
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 60'000, .bytes = 6 << 20};

namespace {

// Work limit of one text. A regular expression of rare syntax charges the meter after at most a few milliseconds.
constexpr uint64_t kWork = uint64_t{1} << 20;
// Tokens of one text that are decoded together, because a decoder may make every token longer.
constexpr size_t kDecodedTokens = 256;

void roundTrip(const std::shared_ptr<const chorus::Tokenizer>& tokenizer, std::string_view text) {
  using namespace chorus;
  std::vector<int32_t> ids;
  try {
    WorkMeter meter({.work = kWork});
    ids = tokenizer->encode(text, true, meter, {.max_tokens = 4096});
    if (ids.size() > 4096) __builtin_trap();
  } catch (const Error&) {
  }
  ids.resize(std::min<size_t>(ids.size(), kDecodedTokens));
  try {
    const std::string whole = tokenizer->decode(ids, false);
    if (!Utf8View::check(whole)) __builtin_trap();
    IncrementalDetokenizer detokenizer(tokenizer, false);
    std::string pieces;
    for (const int32_t id : ids) pieces += detokenizer.feed(id);
    if (pieces + detokenizer.flush() != whole) __builtin_trap();
  } catch (const Error&) {
  }
}

void useTokenizer(const chorus::Json& document, const std::vector<std::string>& texts) {
  using namespace chorus;
  try {
    const auto tokenizer = Tokenizer::fromJson(document, document, "input");
    if (tokenizer->memoryBytes() == 0) __builtin_trap();
    for (const std::string& text : texts) roundTrip(tokenizer, text);
    // Decodes one token at a time, because a decoder may make every token longer, and the text of all of them would
    // need much memory.
    for (const int32_t id : {-1, INT32_MIN, INT32_MAX}) tokenizer->decode({&id, 1}, true);
    for (int32_t id = 0; id <= std::min(tokenizer->vocabSize(), 1000); ++id) tokenizer->decode({&id, 1}, true);
  } catch (const Error&) {
  }
}
}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] != '{') {
    Drawn drawn(data + 1, size - 1);
    const std::string text = drawnText(drawn, 24);
    const Json document = DrawnTokenizer(drawn).document();
    return useTokenizer(document, {text, text + text});
  }
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    parseTokenizerJson(input, "input");
  } catch (const Error&) {
  }
  try {
    useTokenizer(parseJson(input, "input"),
                 {"", "Hello, world's  best\n\n text 123", "\xE6\x97\xA5\xFF\xF0\x9F\x98\x80 e\xCC\x81",
                  "<s>hi</s> <|endoftext|>", "cut \xE6\x97", "\xF0\x9F\x98"});
  } catch (const Error&) {
  }
}
