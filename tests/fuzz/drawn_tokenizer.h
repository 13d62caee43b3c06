// Draws tokenizer documents from a fuzzer's bytes: every model, normalizer, pre-tokenizer, decoder and added token,
// with offsets, ids and texts that need not be consistent.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/json.h"
#include "fuzz/drawn_pattern.h"

namespace chorus::test {

class DrawnTokenizer {
 public:
  explicit DrawnTokenizer(Drawn& drawn) : drawn_(drawn) {}

  Json document() {
    Json json = {{"model", model()}};
    json["normalizer"] = drawn_.chance() ? normalizer(3) : Json();
    json["pre_tokenizer"] = drawn_.chance() ? preTokenizer(3) : Json();
    json["decoder"] = drawn_.chance() ? decoder(3) : Json();
    json["post_processor"] = drawn_.chance() ? postProcessor() : Json();
    json["added_tokens"] = addedTokens(json["model"]);
    return json;
  }

 private:
  const std::string& word() {
    static const std::vector<std::string> kWords = {"a",       "b",       "ab",   " ",  "é",
                                                    "\u2581",  "\u2581a", "<s>",  "aa", "<0x41>",
                                                    "",        "😀",      "日本", "x",  "aaaaaaaaaaaaaaaaaaaa",
                                                    "e\u0301", " '",      " n't", "b."};
    return drawn_.oneOf(kWords);
  }
  // A decoder's output may be this much longer for each match in each token.
  static constexpr size_t kDecoderContent = 64;
  // Replacement text, sometimes long enough to make a text grow.
  std::string content(size_t longest = 4096) { return drawn_.below(8) == 7 ? std::string(longest, 'b') : word(); }
  Json pattern() {
    if (drawn_.chance()) return {{"String", word()}};
    return {{"Regex", drawnPattern(drawn_)}};
  }

  // A trie of a few keys whose units may have any value.
  Json charsmap() {
    static const std::vector<std::string> kTexts = {"é", "x", "漢字", "😀", "", "ab"};
    std::vector<uint32_t> trie(drawn_.chance() ? 1024 : 256 + drawn_.byte());
    trie[0] = 0x100 << 10;
    std::string texts;
    for (size_t n = drawn_.below(5); n > 0; --n) texts += drawn_.oneOf(kTexts) + std::string(1, '\0');
    for (size_t n = 1 + drawn_.below(4); n > 0; --n) {
      const uint32_t key = drawn_.oneOf<uint32_t>({'a', 'b', ' ', 0xC3, 0xE6, 0xF0});
      const uint32_t offset = drawn_.oneOf<uint32_t>({0x200, 0x180, 3, 0});
      const size_t at = 0x100 ^ key;
      if (at < trie.size()) trie[at] = key | (drawn_.chance() ? 0x100u : 0u) | offset << 10;
      if ((at ^ offset) < trie.size()) {
        trie[at ^ offset] =
            (drawn_.chance() ? 0x80000000u : 0u) | static_cast<uint32_t>(drawn_.below(texts.size() + 3));
      }
    }
    for (size_t n = drawn_.below(8); n > 0; --n) {
      const size_t at = drawn_.below(trie.size());
      trie[at] = static_cast<uint32_t>(drawn_.byte()) << 24 | static_cast<uint32_t>(drawn_.below(65536));
    }
    std::string bytes;
    const auto put = [&](uint32_t unit) {
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(unit >> (8 * i)));
    };
    put(static_cast<uint32_t>(4 * trie.size()));
    for (const uint32_t unit : trie) put(unit);
    bytes += texts;
    if (drawn_.chance()) return Json::binary({bytes.begin(), bytes.end()});
    return base64(bytes);
  }

  static std::string base64(const std::string& bytes) {
    static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (size_t i = 0; i < bytes.size(); i += 3) {
      uint32_t bits = 0;
      for (size_t k = 0; k < 3; ++k) {
        bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
      }
      for (int k = 3; k >= 0; --k) out.push_back(kDigits[bits >> (6 * k) & 63]);
    }
    return out;
  }

  template <typename Draw>
  Json sequence(const char* key, Draw draw) {
    Json parts = Json::array();
    for (size_t n = drawn_.below(5); n > 0; --n) parts.push_back(draw());
    return {{"type", "Sequence"}, {key, std::move(parts)}};
  }

  Json normalizer(int depth) {
    switch (drawn_.below(15)) {
      case 0:
        if (depth > 0) return sequence("normalizers", [&] { return normalizer(depth - 1); });
        return {{"type", "NFC"}};
      case 1:
      case 2:
        return {{"type", "Precompiled"}, {"precompiled_charsmap", charsmap()}};
      case 3:
      case 4:
        return {{"type", "Replace"}, {"pattern", pattern()}, {"content", content()}};
      case 5:
        return {{"type", "Prepend"}, {"prepend", content()}};
      case 6:
        return {{"type", "Strip"}, {"strip_left", drawn_.chance()}, {"strip_right", drawn_.chance()}};
      case 7:
      case 8: {
        Json json = {{"type", "BertNormalizer"},
                     {"clean_text", drawn_.chance()},
                     {"handle_chinese_chars", drawn_.chance()},
                     {"lowercase", drawn_.chance()}};
        if (drawn_.chance()) json["strip_accents"] = drawn_.chance();
        return json;
      }
      default: {
        static const std::vector<std::string> kTypes = {"NFC",       "NFD",          "NFKC",      "NFKD",
                                                        "Lowercase", "StripAccents", "ByteLevel", "Nmt"};
        return {{"type", drawn_.oneOf(kTypes)}};
      }
    }
  }

  Json preTokenizer(int depth) {
    static const std::vector<std::string> kBehaviors = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                                        "Contiguous"};
    static const std::vector<std::string> kSchemes = {"always", "first", "never"};
    switch (drawn_.below(13)) {
      case 0:
        if (depth > 0) return sequence("pretokenizers", [&] { return preTokenizer(depth - 1); });
        return {{"type", "Whitespace"}};
      case 1:
        return {{"type", "ByteLevel"}, {"add_prefix_space", drawn_.chance()}, {"use_regex", drawn_.chance()}};
      case 2:
      case 3:
      case 4:
        return {{"type", "Split"},
                {"pattern", pattern()},
                {"behavior", drawn_.oneOf(kBehaviors)},
                {"invert", drawn_.chance()}};
      case 5:
        return {{"type", "Digits"}, {"individual_digits", drawn_.chance()}};
      case 6:
        return {{"type", "Punctuation"}, {"behavior", drawn_.oneOf(kBehaviors)}};
      case 7:
        return {{"type", "CharDelimiterSplit"}, {"delimiter", word()}};
      case 8:
        return {{"type", "Metaspace"},
                {"replacement", word()},
                {"prepend_scheme", drawn_.oneOf(kSchemes)},
                {"split", drawn_.chance()}};
      case 9:
        return {{"type", "FixedLength"}, {"length", drawn_.below(6)}};
      case 10:
        return {{"type", "UnicodeScripts"}};
      case 11:
        return {{"type", "BertPreTokenizer"}};
      default:
        return {{"type", drawn_.chance() ? "Whitespace" : "WhitespaceSplit"}};
    }
  }

  Json decoder(int depth) {
    switch (drawn_.below(11)) {
      case 0:
        if (depth > 0) return sequence("decoders", [&] { return decoder(depth - 1); });
        return {{"type", "Fuse"}};
      case 1:
        return {{"type", "ByteLevel"}};
      case 2:
        return {
            {"type", "Metaspace"}, {"replacement", word()}, {"prepend_scheme", drawn_.chance() ? "first" : "never"}};
      case 3:
      case 4:
        return {{"type", "Replace"}, {"pattern", pattern()}, {"content", content(kDecoderContent)}};
      case 5:
        return {{"type", "Strip"}, {"content", word()}, {"start", drawn_.below(4)}, {"stop", drawn_.below(4)}};
      case 6:
        return {{"type", "WordPiece"}, {"prefix", word()}, {"cleanup", drawn_.chance()}};
      case 7:
        return {{"type", "CTC"}, {"pad_token", word()}, {"word_delimiter_token", word()}, {"cleanup", drawn_.chance()}};
      case 8:
        return {{"type", "BPEDecoder"}, {"suffix", word()}};
      default:
        return {{"type", drawn_.chance() ? "ByteFallback" : "Fuse"}};
    }
  }

  Json postProcessor() {
    const Json id = drawn_.below(300);
    switch (drawn_.below(3)) {
      case 0:
        return {{"type", "RobertaProcessing"}, {"cls", Json::array({"a", id})}, {"sep", Json::array({"b", id})}};
      case 1:
        return {{"type", "TemplateProcessing"},
                {"single", Json::array({{{"SpecialToken", {{"id", "s"}}}}, {{"Sequence", {{"id", "A"}}}}})},
                {"special_tokens", {{"s", {{"ids", Json::array({id})}}}}}};
      default:
        return {{"type", "ByteLevel"}};
    }
  }

  Json model() {
    switch (drawn_.below(5)) {
      case 0:
        return unigram();
      case 1:
        return bpe();
      case 2:
        return words("WordPiece");
      case 3:
        return words("WordLevel");
      default: {
        Json json = bpe();
        return {{"type", "BytePairRanks"}, {"vocab", std::move(json["vocab"])}};
      }
    }
  }

  // WordPiece or WordLevel: tokens with and without the prefix.
  Json words(const char* type) {
    static const std::vector<std::string> kPrefixes = {"##", "a", "", "é"};
    static const std::vector<uint64_t> kLongest = {100, 1, 0, uint64_t{1} << 60};
    const std::string& prefix = drawn_.oneOf(kPrefixes);
    Json vocab = Json::object();
    for (size_t n = drawn_.below(32); n > 0; --n) {
      std::string token = drawn_.chance() ? prefix : "";
      token += drawn_.chance() ? std::string(1, static_cast<char>('a' + drawn_.below(26))) : piece();
      vocab.emplace(std::move(token), vocab.size());
    }
    if (drawn_.chance()) vocab.emplace("[UNK]", vocab.size());
    return {{"type", type},
            {"vocab", vocab},
            {"unk_token", drawn_.below(4) == 3 ? "a" : "[UNK]"},
            {"continuing_subword_prefix", prefix},
            {"max_input_chars_per_word", drawn_.oneOf(kLongest)}};
  }

  Json unigram() {
    static const std::vector<double> kScores = {-1.0, -2.5, 0.0, 1e300, -1e300, 3.0};
    Json vocab = Json::array({Json::array({"<unk>", 0.0})});
    for (size_t n = drawn_.below(24); n > 0; --n) vocab.push_back(Json::array({piece(), drawn_.oneOf(kScores)}));
    addBytes([&](const std::string& name) { vocab.push_back(Json::array({name, -5.0})); });
    return {{"type", "Unigram"}, {"unk_id", drawn_.below(3)}, {"byte_fallback", drawn_.chance()}, {"vocab", vocab}};
  }

  Json bpe() {
    Json vocab = Json::object(), merges = Json::array();
    const auto add = [&](const std::string& token) { vocab.emplace(token, vocab.size()); };
    add("<unk>");
    for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
    for (size_t n = drawn_.below(24); n > 0; --n) add(piece());
    addBytes(add);
    for (size_t n = drawn_.below(16); n > 0; --n) {
      const std::string left = word(), right = word();
      add(left), add(right), add(left + right);
      if (drawn_.chance())
        merges.push_back(Json::array({left, right}));
      else if (merges.empty() || merges[0].is_array())
        merges.push_back(Json::array({right, left})), add(right + left);
    }
    Json json = {{"type", "BPE"},
                 {"vocab", vocab},
                 {"merges", merges},
                 {"fuse_unk", drawn_.chance()},
                 {"byte_fallback", drawn_.chance()},
                 {"ignore_merges", drawn_.chance()}};
    if (drawn_.chance()) json["unk_token"] = drawn_.chance() ? "<unk>" : "a";
    if (drawn_.below(4) == 3) json["end_of_word_suffix"] = word();
    if (drawn_.below(4) == 3) json["continuing_subword_prefix"] = word();
    return json;
  }

  std::string piece() {
    std::string text;
    for (size_t n = 1 + drawn_.below(3); n > 0; --n) text += word();
    return text;
  }
  template <typename Add>
  void addBytes(Add add) {
    if (drawn_.below(4) != 3) return;
    for (int i = 0; i < 256; ++i) add(fmt::format("<0x{:02X}>", i));
  }

  Json addedTokens(const Json& model) {
    Json list = Json::array();
    const Json& vocab = model["vocab"];
    size_t next = vocab.size();
    for (size_t n = drawn_.below(5); n > 0; --n) {
      const std::string& text = word();
      size_t id = next;
      if (vocab.is_object() && vocab.contains(text))
        id = vocab[text];
      else
        ++next;
      list.push_back({{"id", id},
                      {"content", text},
                      {"single_word", drawn_.chance()},
                      {"lstrip", drawn_.chance()},
                      {"rstrip", drawn_.chance()},
                      {"normalized", drawn_.chance()},
                      {"special", drawn_.chance()}});
    }
    return list;
  }

  Drawn& drawn_;
};

}  // namespace chorus::test
