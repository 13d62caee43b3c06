// Compares ids and texts with those of Hugging Face's tokenizers, which tests/oracle/text_goldens.py recorded.
#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "support/test_paths.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/known_splits.h"
#include "text/tokenizer/regex.h"
#include "text/unicode.h"

namespace chorus {
namespace {

using Ids = std::vector<int32_t>;
const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/tokenizers/";

std::vector<Json> readLines(const std::string& name) {
  std::ifstream in(kGoldens + name);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(parseJson(line, name));
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

std::string decodeInSteps(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids, bool skip) {
  IncrementalDetokenizer detokenizer(tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.feed(id);
    EXPECT_EQ(toValidUtf8(piece), piece) << "a piece is not whole characters";
    text += piece;
  }
  return text + detokenizer.flush();
}

void checkRow(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& text, const Json& row) {
  const Ids ids = row["ids"];
  const Ids special = row.contains("special") ? row["special"].get<Ids>() : ids;
  EXPECT_EQ(tokenizer->encode(text, false), ids) << Json(text).dump();
  EXPECT_EQ(tokenizer->encode(text, true), special) << Json(text).dump();
  const std::string decoded = row.value("text", text);
  const std::string skipped = row.value("skipped", decoded);
  EXPECT_EQ(tokenizer->decode(special, false), decoded) << Json(text).dump();
  EXPECT_EQ(tokenizer->decode(special, true), skipped) << Json(text).dump();
  EXPECT_EQ(decodeInSteps(tokenizer, special, false), decoded) << Json(text).dump();
  EXPECT_EQ(decodeInSteps(tokenizer, special, true), skipped) << Json(text).dump();
}

// row: ids, their text, and their text without special tokens.
void checkDecoding(const std::shared_ptr<const Tokenizer>& tokenizer, const Json& row) {
  const Ids ids = row[0];
  EXPECT_EQ(tokenizer->decode(ids, false), row[1].get<std::string>());
  EXPECT_EQ(tokenizer->decode(ids, true), row[2].get<std::string>());
  EXPECT_EQ(decodeInSteps(tokenizer, ids, false), row[1].get<std::string>());
  EXPECT_EQ(decodeInSteps(tokenizer, ids, true), row[2].get<std::string>());
}

class TokenizerGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGoldenTest, EncodesAndDecodes) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + name + ".json"), Json(), name);
  const auto strings = readLines("strings.jsonl");
  const auto rows = readLines(name + ".jsonl");
  ASSERT_EQ(strings.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) checkRow(tokenizer, strings[i], rows[i]);
}

TEST_P(TokenizerGoldenTest, DecodesAnyIds) {
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + name + ".json"), Json(), name);
  for (const Json& row : readLines(name + ".decode.jsonl")) checkDecoding(tokenizer, row);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGoldenTest,
                         testing::Values("gpt2", "roberta", "llama3", "qwen2", "llama2", "metaspace", "lowercase",
                                         "unigram"),
                         [](const auto& info) { return std::string(info.param); });

class TokenizerVariantTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerVariantTest, EveryComponentInPlaceOfAnother) {
  const auto strings = readLines("strings.jsonl");
  for (const Json& row : readLines(GetParam())) {
    Json document = readJsonFile(kGoldens + row["base"].get<std::string>() + ".json");
    for (const auto& [key, value] : row["changes"].items()) {
      if (key == "model")
        document["model"].update(value);
      else
        document[key] = value;
    }
    SCOPED_TRACE(row["changes"].dump());
    const auto tokenizer = Tokenizer::fromJson(document, Json(), "variant");
    for (const Json& item : row["cases"]) checkRow(tokenizer, strings[item["string"].get<size_t>()], item);
    for (const Json& item : row.value("decodings", Json::array())) checkDecoding(tokenizer, item);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVariantTest, testing::Values("variants.jsonl", "words.jsonl"),
                         [](const auto& info) { return std::string(info.param, std::strchr(info.param, '.')); });

// Every character after every kind of neighbour, and random mixtures.
TEST(KnownSplitsTest, EqualTheirRegularExpressions) {
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const KnownSplit known = findKnownSplit(pattern);
    ASSERT_NE(known, nullptr);
    const Regex regex(pattern, "known");
    const auto check = [&](const std::string& text) {
      WorkMeter meter;
      Scratch scratch(Scratch::limitFor(text.size()), meter);
      EncodeWork work{meter, scratch};
      std::vector<TextRange> by_hand, by_regex;
      const auto into = [](std::vector<TextRange>& ranges) {
        return [&ranges](size_t begin, size_t end) { return ranges.emplace_back(begin, end), true; };
      };
      forEachKnownMatch(known, *Utf8View::check(text), work, into(by_hand));
      regex.forEachMatch(*Utf8View::check(text), work, into(by_regex));
      ASSERT_EQ(by_hand, by_regex) << Json(text).dump();
    };
    std::string text;
    for (uint32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      if (code >= 0x20000 && code % 16 != 0) continue;
      appendUtf8(text, code);
      text += "'";
      appendUtf8(text, code);
      text += code % 3 == 0 ? " " : code % 3 == 1 ? "a" : "1";
      if (text.size() < 1000) continue;
      check(text);
      text.clear();
    }
    check(text);
    std::mt19937 rng(3);
    const std::vector<std::string> atoms = {
        "a",  "Z",        " ",  "  ",  "\n", "\r",       "\t", "'", "s", "'S",       "'lL",
        "re", "1",        "22", "333", "é",  "\xC5\xBF", "日", "!", "_", "\xC2\xA0", "\xE3\x80\x80",
        "½",  "\xCC\x81", "😀", "'v",  "E"};
    for (int i = 0; i < 20000; ++i) {
      std::string mix;
      for (size_t n = rng() % 12; n > 0; --n) mix += atoms[rng() % atoms.size()];
      check(mix);
    }
  }
  EXPECT_EQ(findKnownSplit("a|b"), nullptr);
}

TEST(TokenizerTest, LongWordsTakeLittleTime) {
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + "gpt2.json"), Json(), "gpt2");
  const std::string word(2'000'000, 'h');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(word, false), false), word);
}

TEST(TokenizerTest, InvalidUtf8IsReadAsReplacement) {
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + "gpt2.json"), Json(), "gpt2");
  EXPECT_EQ(tokenizer->encode("a\xFF\xE6\x97z", false), tokenizer->encode("a\uFFFD\uFFFDz", false));
}

TEST(TokenizerTest, ThreadsAgree) {
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + "llama3.json"), Json(), "llama3");
  const auto strings = readLines("strings.jsonl");
  const auto rows = readLines("llama3.jsonl");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < rows.size(); ++i)
        EXPECT_EQ(tokenizer->encode(strings[i].get<std::string>(), false), rows[i]["ids"].get<Ids>());
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(TokenizerTest, RefusesWhatItDoesNotKnow) {
  const Json base = readJsonFile(kGoldens + "gpt2.json");
  const auto refusal = [&](const char* path, Json value) {
    Json document = base;
    document[Json::json_pointer(path)] = std::move(value);
    return errorOf([&] { Tokenizer::fromJson(document, Json(), "t.json"); });
  };
  EXPECT_EQ(refusal("/normalizer", {{"type", "New"}}), "t.json: normalizer: the normalizer 'New' is not supported");
  EXPECT_EQ(refusal("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////wAA"}}),
            "t.json: normalizer.Precompiled: 'precompiled_charsmap' does not match the size in its header");
  EXPECT_EQ(refusal("/model", {{"type", "Unigram"}, {"vocab", Json::array({Json::array({"a", 0.5})})}}),
            "t.json: model: a Unigram model needs an 'unk_id' for text that its pieces don't cover");
  EXPECT_EQ(refusal("/pre_tokenizer", {{"type", "New"}}),
            "t.json: pre_tokenizer: the pre-tokenizer 'New' is not supported");
  EXPECT_EQ(refusal("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}),
            "t.json: pre_tokenizer.FixedLength: 'length' must be at least 1");
  EXPECT_EQ(refusal("/decoder", {{"type", "New"}}), "t.json: decoder: the decoder 'New' is not supported");
  EXPECT_EQ(refusal("/decoder", {{"type", "BPEDecoder"}, {"suffix", ""}}),
            "t.json: decoder.BPEDecoder: an empty 'suffix' is not supported");
  EXPECT_EQ(refusal("/post_processor", {{"type", "New"}}),
            "t.json: post_processor: the post-processor 'New' is not supported");
  EXPECT_EQ(refusal("/model/type", "New"),
            "t.json: model: the model 'New' is not supported; BPE, Unigram, WordPiece and WordLevel are");
  EXPECT_THAT(refusal("/model/dropout", 0.1), testing::HasSubstr("dropout"));
  EXPECT_THAT(refusal("/model/vocab/zzz", 0u), testing::HasSubstr("two tokens"));
  EXPECT_THAT(refusal("/model/vocab/zzz", 4294967295u), testing::HasSubstr("'vocab'"));
  EXPECT_THAT(refusal("/model/merges/0", "a b c"), testing::HasSubstr("merge 0"));
  EXPECT_THAT(refusal("/model/merges/0", "zzzz a"), testing::HasSubstr("not in 'vocab'"));
  EXPECT_THAT(refusal("/model/unk_token", "nope"), testing::HasSubstr("unk_token"));
  EXPECT_THAT(refusal("/added_tokens/0/id", 9999), testing::HasSubstr("; expected 0"));
  EXPECT_THAT(refusal("/pre_tokenizer",
                      {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}, {"invert", false}}),
              testing::HasSubstr("doesn't compile"));
  Json stripped = base;
  stripped["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  stripped["added_tokens"].push_back({{"id", base["model"]["vocab"].size()}, {"content", "\n"}, {"normalized", true}});
  EXPECT_EQ(errorOf([&] { Tokenizer::fromJson(stripped, Json(), "t.json"); }),
            "t.json: the normalizer turns the added token '?' into an empty text");
  EXPECT_THAT(errorOf([] { Tokenizer::load("/nonexistent"); }), testing::HasSubstr("tokenizer.json"));
}

// A token with an empty text is still a token: without a decoder a space is written before it.
TEST(TokenizerTest, EmptyTokensAreDecoded) {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  document["model"] = parseJson(R"({"vocab": {"a": 0, "": 1, "b": 3}, "merges": []})", "model");
  document["added_tokens"] = Json::array();
  document["decoder"] = nullptr;
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
  EXPECT_EQ(tokenizer->decode(Ids{0, 1, 3}, false), "a  b");
  EXPECT_EQ(decodeInSteps(tokenizer, {1, 0}, false), " a");
  EXPECT_EQ(tokenizer->decode(Ids{0, 2, 3, 9}, false), "a b");  // 2 and 9 are no tokens
}

// Metaspace's scheme "first" marks only a text whose start the normalizer has kept. The ids are the library's.
TEST(TokenizerTest, ANormalizerMayRemoveTheStartOfAText) {
  Json document = {
      {"model", {{"type", "WordLevel"}, {"vocab", {{"?", 0u}, {"_ab", 1u}, {"ab", 2u}}}, {"unk_token", "?"}}},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"split", false}}}};
  const auto id = [&](const Json& normalizer, const std::string& text) {
    document["normalizer"] = normalizer;
    return Tokenizer::fromJson(document, Json(), "t")->encode(text, false).at(0);
  };
  const auto replace = [](const char* pattern, const char* content) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
  };
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  EXPECT_EQ(id(strip, "ab"), 1);
  EXPECT_EQ(id(strip, " ab"), 2);
  EXPECT_EQ(id({{"type", "Nmt"}},
               "\x7F"
               "ab"),
            2);
  EXPECT_EQ(id(replace("x", ""), "xab"), 2);
  EXPECT_EQ(id(replace("x", "a"), "xb"), 1);
  EXPECT_EQ(id(replace("xx", "a"), "xxb"), 2);
  EXPECT_EQ(
      id({{"type", "Sequence"}, {"normalizers", {replace("x", ""), {{"type", "Prepend"}, {"prepend", "a"}}}}}, "xb"),
      2);
}

// A token that takes the white space around it may take all of the next one.
TEST(TokenizerTest, WhiteSpaceTokensDoNotOverlap) {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  const auto id = document["model"]["vocab"].size();
  document["added_tokens"].push_back({{"id", id},
                                      {"content", "\n"},
                                      {"single_word", false},
                                      {"lstrip", true},
                                      {"rstrip", true},
                                      {"normalized", false},
                                      {"special", false}});
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
  const Ids newline{static_cast<int32_t>(id)};
  EXPECT_EQ(tokenizer->encode(" \n", false), newline);
  EXPECT_EQ(tokenizer->encode(" \n\n \n", false), newline);
}

// A tokenizer without an unknown token serves the words that it has.
TEST(TokenizerTest, AWordWithoutATokenNeedsAnUnknownToken) {
  Json document = {{"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0u}, {"b", 1u}}}, {"unk_token", "<unk>"}}},
                   {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
  EXPECT_EQ(Tokenizer::fromJson(document, Json(), "t")->encode("a b a", false), (Ids{0, 1, 0}));
  const std::string message = "the tokenizer has no token for the word 'c', and its vocabulary lacks the unk_token";
  EXPECT_EQ(errorOf([&] { Tokenizer::fromJson(document, Json(), "t")->encode("a c", false); }), message);
  document["model"].update(
      {{"type", "WordPiece"}, {"continuing_subword_prefix", "#"}, {"max_input_chars_per_word", 9}});
  EXPECT_EQ(errorOf([&] { Tokenizer::fromJson(document, Json(), "t")->encode("a c", false); }), message);
}

// A word with many pieces and no end that fits is one unknown token, even if its pieces are more than the limit.
TEST(TokenizerTest, TheLimitCountsTheTokensOfAWordOnce) {
  const Json document = {{"model",
                          {{"type", "WordPiece"},
                           {"vocab", {{"a", 0u}, {"#a", 1u}, {"?", 2u}}},
                           {"unk_token", "?"},
                           {"continuing_subword_prefix", "#"},
                           {"max_input_chars_per_word", 100}}}};
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t");
  WorkMeter meter;
  EXPECT_EQ(tokenizer->encode("aaaaab", false, meter, {.max_tokens = 2}), Ids{2});
  EXPECT_THROW(tokenizer->encode("aaaaa", false, meter, {.max_tokens = 2}), TooManyTokens);
}

TEST(TokenizerTest, ReadsTheConfig) {
  const Json config =
      parseJson(R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
      "chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}],
      "added_tokens_decoder": {"480": {"content": "<extra>", "special": true}}})",
                "config");
  const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + "llama2.json"), config, "t");
  EXPECT_EQ(tokenizer->bosId(), 1);
  EXPECT_EQ(tokenizer->eosId(), 2);
  EXPECT_EQ(tokenizer->padId(), std::nullopt);
  EXPECT_EQ(tokenizer->chatTemplates().at("tool_use"), "B");
  EXPECT_EQ(tokenizer->tokenId("<extra>"), 480);
  EXPECT_EQ(tokenizer->vocabSize(), 481);
  EXPECT_EQ(tokenizer->encode("<extra>", false), Ids{480});
  EXPECT_TRUE(tokenizer->isSpecial(480));
  EXPECT_EQ(tokenizer->tokenText(100000), "");
}

}  // namespace
}  // namespace chorus
