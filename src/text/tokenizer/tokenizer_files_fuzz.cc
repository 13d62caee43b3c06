// The files of a model directory that is no trusted one: each is read or refused, and a tokenizer that is read encodes
// and decodes. The first byte of the input chooses the kind of file. The rest is the file, or, for a directory of two
// files, both with a byte of zero between them; a config follows after another zero. Beside a fixed tokenizer.json lie
// the config and the two older files.
// parses: src/text/tokenizer/tokenizer_files.cc src/text/tokenizer/rank_files_import.cc
// parses: src/text/tokenizer/vocabulary_files_import.cc src/text/tokenizer/configured_tokens.cc
// src/text/tokenizer/config_tokens.cc src/base/base64.cc
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "fuzz/fuzz_target.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"
#include "text/utf8_text.h"

// The special tokens of Llama 3 and Qwen, the tables of a byte pair model, and the lines of the byte tokens that a
// drawn file begins with.
// While Oniguruma's stack grows to its limit, the old and the new one take 4 MB (regex_fuzz.cc).
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 60'000, .bytes = 6 << 20};

namespace {

constexpr uint64_t kWork = uint64_t{1} << 20;

std::string byteLines() {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    text += " " + std::to_string(byte) + "\n";
  }
  return text;
}

// The document of a tekken.json: the tokens of all bytes, further ones from the input, and the input's config.
std::string tekkenFile(std::string_view config, std::string_view tokens) {
  std::string text = R"({"config":)" + std::string(config.empty() ? "{}" : config) + R"(,"vocab":[)";
  std::string lines = byteLines();
  for (std::string_view left = lines; !left.empty();) {
    const std::string_view line = left.substr(0, left.find('\n'));
    text +=
        R"({"rank":)" + std::string(line.substr(5)) + R"(,"token_bytes":")" + std::string(line.substr(0, 4)) + R"("},)";
    left.remove_prefix(line.size() + 1);
  }
  text += std::string(tokens);
  if (text.ends_with(',')) text.pop_back();
  return text + "]}";
}

constexpr std::string_view kTokenizerJson = R"({"normalizer":{"type":"Lowercase"},"added_tokens":[
{"id":1,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
{"id":4,"content":"<X>","single_word":false,"lstrip":false,"rstrip":false,"normalized":true,"special":false}],
"model":{"type":"BPE","vocab":{"a":0,"<s>":1,"b":2,"ab":3},"merges":["a b"]}})";

void readFiles(const chorus::TokenizerFileSet& set) {
  using namespace chorus;
  try {
    const TokenizerFiles files = parseTokenizerFiles(set);
    const auto tokenizer = Tokenizer::fromJson(files.tokenizer, files.config, files.source);
    for (const std::string_view text : {"ab aab <s>\u00e9 12\n\n", "\U0001F600aaaa aaaaaaaa<|im_end|>"}) {
      WorkMeter meter({.work = kWork});
      const auto ids = tokenizer->encode(text, true, meter);
      if (!Utf8View::check(tokenizer->decode(ids, false))) __builtin_trap();
    }
  } catch (const Error&) {
  }
}
}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  if (size == 0) return;
  static constexpr const char* kNames[] = {"tokenizer.model",      "qwen.tiktoken",       "r50k_base.tiktoken",
                                           "cl100k_base.tiktoken", "o200k_base.tiktoken", "tiktoken.model"};
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto takePart = [&] {
    const std::string_view part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return std::string(part);
  };
  TokenizerFileSet set{"d", {}};
  const unsigned kind = data[0] & 15;
  if (kind < 6) {
    set.files[kNames[kind]] = (data[0] & 16) != 0 ? byteLines() + takePart() : takePart();
  } else if (kind < 9) {
    set.files["vocab.json"] = takePart();
    set.files["merges.txt"] = takePart();
  } else if (kind < 11) {
    set.files["vocab.txt"] = takePart();
  } else if (kind < 13) {
    const std::string config = takePart();
    set.files["tekken.json"] = tekkenFile(config, takePart());
  } else if (kind < 15) {
    set.files["tekken.json"] = takePart();
  } else {
    set.files["tokenizer.json"] = kTokenizerJson;
    for (const char* name : {"special_tokens_map.json", "added_tokens.json"}) {
      if (std::string part = takePart(); !part.empty()) set.files[name] = std::move(part);
    }
  }
  if (!rest.empty()) set.files["tokenizer_config.json"] = std::string(rest);
  readFiles(set);
}
