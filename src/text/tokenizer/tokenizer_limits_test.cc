// Limits on what a hostile tokenizer or text may cost: work, tokens and stack. tests/tokenizer_memory_test.cc checks
// the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "support/test_paths.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/tokenizers/";
constexpr const char* kFamilies[] = {"gpt2",      "roberta",   "llama3",  "qwen2", "llama2",
                                     "metaspace", "lowercase", "unigram", "bert"};

std::string repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// Returns the error with which the document fails to load, or to encode the text within `work`; empty if both succeed.
std::string refusal(const Json& document, const std::string& text, uint64_t work = uint64_t{1} << 28) {
  return errorOf([&] {
    const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
    WorkMeter meter({.work = work});
    tokenizer->encode(text, true, meter);
  });
}

// A charsmap that maps "a" to the text at `offset`.
Json charsmapTo(uint32_t offset, const std::string& texts) {
  std::vector<uint32_t> trie(1024);
  trie[0] = 0x100 << 10;
  trie[0x100 ^ 'a'] = 'a' | 1 << 8 | 0x200 << 10;
  trie[0x100 ^ 'a' ^ 0x200] = 0x80000000 | offset;
  std::vector<uint8_t> bytes;
  const auto put = [&](uint32_t unit) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(unit >> (8 * i)));
  };
  put(4096);
  for (const uint32_t unit : trie) put(unit);
  bytes.insert(bytes.end(), texts.begin(), texts.end());
  return {{"type", "Precompiled"}, {"precompiled_charsmap", Json::binary(bytes)}};
}

Json unigram() {
  return {
      {"type", "Unigram"},
      {"unk_id", 0},
      {"vocab", Json::array({Json::array({"<unk>", 1e300}), Json::array({"b", 1e300}), Json::array({"c", 1e300})})}};
}

TEST(TokenizerLimitsTest, CharsmapOffsetsInsideACharacterAreRefused) {
  const std::string texts("\xC3\xA9\0\xE6\x97\xA5", 6);
  for (uint32_t offset = 0; offset < 8; ++offset) {
    const Json document = {{"model", unigram()}, {"normalizer", charsmapTo(offset, texts)}};
    const bool inside = offset == 1 || offset == 4 || offset == 5;
    const std::string message = refusal(document, std::string(101, 'a'));
    if (inside)
      EXPECT_THAT(message, HasSubstr("begins inside a character")) << offset;
    else
      EXPECT_EQ(message, "") << offset;
  }
}

// Every way to cut a token of a tiktoken file is tried.
TEST(TokenizerLimitsTest, MergesOfRanksAreFoundWithinTheLimitOnWork) {
  Json vocab = Json::object();
  for (int i = 0; i < 100; ++i) vocab[std::to_string(100 + i) + std::string(1000, 'a')] = static_cast<uint64_t>(i);
  const Json document = {{"model", {{"type", "BytePairRanks"}, {"vocab", vocab}}}};
  WorkMeter meter({.work = uint64_t{32} << 20});
  EXPECT_THAT(errorOf([&] { Tokenizer::fromJson(document, Json(), "t.json", meter); }),
              HasSubstr("the limit of 33554432 bytes of work"));
}

TEST(TokenizerLimitsTest, AddedTokensAreEnteredWithinTheLimitOnWork) {
  // Each token visits all children of the root's first child.
  Json added = Json::array();
  for (int i = 0; i < 100; ++i) {
    for (int j = 0; j < 100; ++j) {
      const std::string content = {'x', static_cast<char>(' ' + i % 90), static_cast<char>(' ' + j % 90)};
      added.push_back(
          {{"id", 3 + 100 * i + j}, {"content", content + std::to_string(100 * i + j)}, {"normalized", false}});
    }
  }
  const Json document = {{"model", unigram()}, {"added_tokens", added}};
  WorkMeter meter;
  Tokenizer::fromJson(document, Json(), "t.json", meter);
  EXPECT_GT(meter.spent(), 10'000u * 64 * 2);
  EXPECT_THAT(errorOf([&] { Tokenizer::fromJson(document, Json(), "t.json", meter, 100); }),
              HasSubstr("its tokenizer has at least 101 tokens, but the engine has embeddings for 100"));
}

TEST(TokenizerLimitsTest, RegularExpressionsAreCompiledWithinTheLimitOnWork) {
  std::string dear;
  for (int i = 0; i < 63; ++i) dear += "(?:x?|y?)";
  for (int i = 0; i < 600; ++i) dear += "\\w?";
  dear += "z";
  const Json pattern = {{"Regex", dear}};
  const Json replace = {{"type", "Replace"}, {"pattern", pattern}, {"content", ""}};
  const Json split = {{"type", "Split"}, {"pattern", pattern}, {"behavior", "Removed"}, {"invert", false}};
  const auto refused = [&](const char* part, const Json& value) {
    Json document = {{"model", unigram()}};
    document[part] = value;
    WorkMeter enough, little({.work = 1'000'000});
    EXPECT_NE(Tokenizer::fromJson(document, Json(), "t.json", enough), nullptr) << part;
    EXPECT_THROW(Tokenizer::fromJson(document, Json(), "t.json", little), WorkStopped) << part;
  };
  refused("normalizer", replace);
  refused("pre_tokenizer", split);
  refused("decoder", replace);
}

TEST(TokenizerLimitsTest, TextsThatANormalizerMultipliesAreRefused) {
  const std::string text = repeated("a", 100000);
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(65536, 'b')}};
  const Json twice = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "aa"}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", std::string(1 << 20, 'a')}};
  Json many = Json::array();
  for (int i = 0; i < 60; ++i) many.push_back(twice);
  for (const Json& normalizer : {replace, Json{{"type", "Sequence"}, {"normalizers", many}}, prepend,
                                 charsmapTo(0, std::string(1 << 20, 'x'))}) {
    const Json document = {{"model", unigram()}, {"normalizer", normalizer}};
    EXPECT_THAT(refusal(document, text), AnyOf(HasSubstr("bytes of memory"), HasSubstr("bytes of work")));
  }
  for (int i = 0; i < 10; ++i) many.push_back(twice);
  EXPECT_THAT(refusal({{"model", unigram()}, {"normalizer", {{"type", "Sequence"}, {"normalizers", many}}}}, ""),
              HasSubstr("more than 64 normalizers"));
}

// A word of any length is cut in time proportional to it, when the file allows words of any length.
TEST(TokenizerLimitsTest, LongWordsAreCutInLinearTime) {
  Json document = readJsonFile(kGoldens + "bert.json");
  document["model"]["max_input_chars_per_word"] = uint64_t{1} << 40;
  for (const char* unit : {"a", "th", "the"}) {
    EXPECT_EQ(refusal(document, repeated(unit, 1 << 20), uint64_t{1} << 29), "") << unit;
  }
}

// Cases that a simple implementation handles in quadratic time: marks to sort, added tokens that share white space,
// nested prefixes, pieces of every length.
TEST(TokenizerLimitsTest, WorkGrowsWithTheText) {
  const auto work = [](const Json& document, const std::string& text) {
    const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
    WorkMeter meter;
    tokenizer->encode(text, true, meter);
    return meter.spent();
  };
  const auto added = [](const std::string& content) {
    return Json{{"content", content}, {"normalized", false}, {"rstrip", true}, {"lstrip", true}, {"single_word", true}};
  };
  const auto check = [&](const Json& document, const std::string& unit) {
    const uint64_t small = work(document, repeated(unit, 20000)), large = work(document, repeated(unit, 160000));
    EXPECT_LT(large, small * 12) << document.dump().substr(0, 300) << " on " << unit;
    EXPECT_LT(large, uint64_t{160000} * 4096) << document.dump().substr(0, 300) << " on " << unit;
  };
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    for (const char* unit : {"\u0301\u0316", "a", "\uAC01", "\u1100\u1161", "\uFB01e\u0301"}) {
      check({{"model", unigram()}, {"normalizer", {{"type", form}}}}, unit);
    }
  }
  Json spaces = {{"model", unigram()}, {"added_tokens", Json::array({added(" "), added("\n")})}};
  for (int i = 0; i < 2; ++i) spaces["added_tokens"][i]["id"] = 3 + i;
  for (const char* unit : {" ", "\n", " \n", "a "}) check(spaces, unit);
  for (const char* family : kFamilies) {
    const Json document = readJsonFile(kGoldens + family + ".json");
    for (const char* unit : {"a", " ", "The quick brown fox. ", "\u65e5\u672c", "\U0001F600", "\n", "1"}) {
      check(document, unit);
    }
  }
}

TEST(TokenizerLimitsTest, EncodingStopsBehindTheLastTokenAllowed) {
  const std::string text = repeated("The quick brown fox. ", 4'000'000);
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const auto tokenizer = Tokenizer::fromJson(readJsonFile(kGoldens + family + ".json"), Json(), family);
    const auto whole = tokenizer->encode(text.substr(0, 100), true);
    WorkMeter meter;
    EXPECT_EQ(tokenizer->encode(text.substr(0, 100), true, meter, {.max_tokens = whole.size()}), whole);
    EXPECT_THROW(tokenizer->encode(text.substr(0, 100), true, meter, {.max_tokens = whole.size() - 1}), TooManyTokens);
    WorkMeter long_text;
    EXPECT_THAT(errorOf([&] { tokenizer->encode(text, true, long_text, {.max_tokens = 1000}); }),
                HasSubstr("more than 1000 tokens"));
    // The whole text may be normalized first, but it must not be split and merged.
    EXPECT_LT(long_text.spent(), text.size() * 64);
  }
}

TEST(TokenizerLimitsTest, TheMeterStopsEveryFamily) {
  const std::string text = repeated("The quick brown fox. ", 1'000'000);
  for (const char* family : kFamilies) {
    EXPECT_THAT(refusal(readJsonFile(kGoldens + family + ".json"), text, 2'000'000), HasSubstr("bytes of work"))
        << family;
  }
}

void* callOn(void* function) {
  (*static_cast<std::function<void()>*>(function))();
  return nullptr;
}

void onSmallStack(std::function<void()> function) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{256} << 10);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, callOn, &function), 0);
  pthread_join(thread, nullptr);
}

Json nested(const char* key, int depth, Json inner) {
  for (int i = 0; i < depth; ++i) inner = {{"type", "Sequence"}, {key, Json::array({std::move(inner)})}};
  return inner;
}

TEST(TokenizerLimitsTest, SmallStacksAreEnough) {
#if !defined(__SANITIZE_ADDRESS__)
  const std::string text = repeated("aab e\u0301 ", 20000);
  onSmallStack([&] {
    const auto base = readJsonFile(kGoldens + "gpt2.json");
    const auto try_part = [&](const char* part, Json value) {
      Json document = base;
      document[part] = std::move(value);
      errorOf([&] {
        const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
        WorkMeter meter({.work = uint64_t{1} << 28});
        tokenizer->decode(tokenizer->encode(text, true, meter), false);
      });
    };
    const Json split = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
    Json splits = Json::array(), replaces = Json::array();
    for (int i = 0; i < 31; ++i) {
      splits.push_back(split);
      replaces.push_back({{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "a"}});
    }
    try_part("normalizer", nested("normalizers", 60, {{"type", "NFC"}}));
    try_part("pre_tokenizer", nested("pretokenizers", 60, split));
    try_part("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", splits}});
    try_part("decoder", nested("decoders", 60, {{"type", "Fuse"}}));
    try_part("decoder", {{"type", "Sequence"}, {"decoders", replaces}});
    try_part("post_processor", nested("processors", 60, {{"type", "ByteLevel"}, {"trim_offsets", true}}));
    for (int depth : {20, 24, 30, 60, 400}) {
      for (const auto& [open, close] : {std::pair("(", ")+"),
                                        {"(?:", ")?"},
                                        {"(?=", ")"},
                                        {"(?>", ")"},
                                        {"[", "]"},
                                        {"(?i:", ")"},
                                        {"(?!", "\\1)"}}) {
        std::string pattern = "a";
        for (int i = 0; i < depth; ++i) pattern.insert(0, open).append("b").append(close);
        Json regex = split;
        regex["pattern"] = {{"Regex", pattern}};
        try_part("pre_tokenizer", regex);
        regex["pattern"] = {{"Regex", pattern + "|(\\w)\\1"}};
        try_part("pre_tokenizer", regex);
      }
    }
  });
#endif
}

TEST(TokenizerLimitsTest, DecodersThatMultiplyTextAreRefused) {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  Json replaces = Json::array();
  for (int i = 0; i < 31; ++i) {
    replaces.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  document["decoder"] = {{"type", "Sequence"}, {"decoders", replaces}};
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
  const std::vector<int32_t> ids(3, tokenizer->tokenId("a").value());
  EXPECT_THAT(errorOf([&] { tokenizer->decode(ids, false); }),
              AnyOf(HasSubstr("bytes of memory"), HasSubstr("of work")));
}

TEST(TokenizerLimitsTest, DecodersHoldBackALimitedText) {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  const Json replace{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}};
  document["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, replace}}};
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
  const int32_t id = tokenizer->tokenId("a").value();
  const std::vector<int32_t> most(size_t{256} << 10, id);
  EXPECT_EQ(tokenizer->decode(most, false), std::string(most.size(), 'b'));
  const std::vector<int32_t> more(most.size() + 1, id);
  EXPECT_THAT(errorOf([&] { tokenizer->decode(more, false); }), HasSubstr("holds back more than 256 KiB"));
}

constexpr int32_t kAddedId = 420;  // follows the ids of gpt2.json

// A tokenizer with this chain of decoders, and one more token.
std::shared_ptr<const Tokenizer> decodingBy(Json decoders, const std::string& added = "added") {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  document["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  document["added_tokens"].push_back({{"id", kAddedId}, {"content", added}, {"normalized", false}});
  return Tokenizer::fromJson(document, Json(), "t.json");
}

TEST(TokenizerLimitsTest, DecodersHoldBackALimitedNumberOfCharacters) {
  const std::string face = "\U0001F600";
  const Json replace{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", repeated(face, 64)}};
  const Json strip{{"type", "Strip"}, {"content", face}, {"start", 0}, {"stop", uint64_t{1} << 62}};
  const auto tokenizer = decodingBy({replace, {{"type", "Fuse"}}, strip});
  const int32_t id = tokenizer->tokenId("a").value(), other = tokenizer->tokenId("b").value();
  std::vector<int32_t> most((size_t{256} << 10) / 64, id);
  EXPECT_EQ(tokenizer->decode(most, false), "");
  most.push_back(id);
  EXPECT_THAT(errorOf([&] { tokenizer->decode(most, false); }), HasSubstr("holds back more than 256 KiB"));
  // The text that a token releases is charged before it is made.
  std::vector<int32_t> some(100, id);
  some.push_back(other);
  EXPECT_EQ(tokenizer->decode(some, false), repeated(face, 6400) + "b");
  IncrementalDetokenizer stream(tokenizer, false);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(stream.feed(id), "");
  EXPECT_THAT(errorOf([&] { stream.feed(other); }), HasSubstr("bytes of work"));
}

TEST(TokenizerLimitsTest, DecodersReturnALimitedText) {
  const Json replace{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "xxxxx"}};
  const auto tokenizer = decodingBy({{{"type", "Fuse"}}, replace});
  const int32_t id = tokenizer->tokenId("a").value();
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>(100'000, id), false), std::string(500'000, 'x'));
  EXPECT_THAT(errorOf([&] { tokenizer->decode(std::vector<int32_t>(250'000, id), false); }),
              HasSubstr("returns too much text: the limits are 4 times the bytes of the tokens, and 1024 KiB at once"));
}

// A token's text takes many times its bytes in log probabilities, so a decoder must not lengthen it much.
TEST(TokenizerLimitsTest, DecodersLengthenATokenByALimitedFactor) {
  for (const size_t factor : {4, 5}) {
    const Json replace{{"type", "Replace"}, {"pattern", {{"String", "y"}}}, {"content", std::string(factor, 'z')}};
    const auto tokenizer = decodingBy(Json::array({replace}), repeated("y", 1000));
    IncrementalDetokenizer stream(tokenizer, false);
    const auto feed = [&] { return stream.feed(kAddedId); };
    if (factor == 4)
      EXPECT_EQ(feed(), std::string(4000, 'z'));
    else
      EXPECT_THAT(errorOf(feed), HasSubstr("returns too much text"));
    // A short token may become 64 bytes.
    const auto shorter = decodingBy(Json::array({replace}), repeated("y", 64 / factor));
    EXPECT_EQ(shorter->decode(std::vector<int32_t>{kAddedId}, false), std::string(64 / factor * factor, 'z'));
  }
}

// Every byte that enters a stage is charged, whatever the stage, so no call takes longer than its limit on work says.
TEST(TokenizerLimitsTest, EveryStageOfADecoderIsCharged) {
  const Json stages[] = {{{"type", "Metaspace"}, {"replacement", "z"}, {"prepend_scheme", "never"}},
                         {{"type", "Strip"}, {"content", "z"}, {"start", 1}, {"stop", 1}},
                         {{"type", "ByteFallback"}},
                         {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}},
                         {{"type", "ByteLevel"}}};
  constexpr size_t kStages = 30;
  const Json longer{{"type", "Replace"}, {"pattern", {{"String", "y"}}}, {"content", std::string(30, 'z')}};
  for (const Json& stage : stages) {
    SCOPED_TRACE(stage.dump());
    for (const bool fused : {false, true}) {
      Json decoders = Json::array({longer});
      if (fused) decoders.push_back({{"type", "Fuse"}});
      for (size_t i = 0; i < kStages; ++i) decoders.push_back(stage);
      const std::string token = repeated("z", 120);
      WorkMeter meter;
      IncrementalDetokenizer stream(decodingBy(decoders, token), false, &meter);
      stream.feed(kAddedId);
      stream.flush();
      EXPECT_GE(meter.spent(), 4 * (token.size() - 2 * kStages) * kStages);
      // One call is limited to 64 KiB of work and 64 for each byte of the token.
      EXPECT_THAT(
          errorOf([&] { decodingBy(decoders, repeated("y", 1000))->decode(std::vector<int32_t>{kAddedId}, false); }),
          HasSubstr("the limit of 129536 bytes of work"));
    }
  }
}

// A stage that splits a text into many pieces, each of which passes all stages behind it.
TEST(TokenizerLimitsTest, EveryPieceOfAHeldBackTextIsCharged) {
  Json decoders = Json::array(
      {{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "<0xFF>"}}, {{"type", "ByteFallback"}}});
  for (int i = 0; i < 30; ++i) decoders.push_back({{"type", "Strip"}, {"content", "z"}, {"start", 0}, {"stop", 0}});
  const auto tokenizer = decodingBy(decoders);
  const std::vector<int32_t> ids(100'000, tokenizer->tokenId("a").value());
  EXPECT_THAT(errorOf([&] { tokenizer->decode(ids, false); }), HasSubstr("bytes of work"));
  // Without the other stages, so many invalid bytes are decoded.
  const auto plain = decodingBy({{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}, "<0xFF>");
  EXPECT_EQ(plain->decode(std::vector<int32_t>(100'000, kAddedId), false), repeated("\uFFFD", 300'000));
}

// Each further "(?:|)" doubles the steps, also on the empty text with which a Replace is checked.
TEST(TokenizerLimitsTest, APatternWithoutEndIsRefusedAtOnce) {
  for (const std::string& pattern : {"(?=" + repeated("(?:|)", 300) + "(?!))", "(?>" + repeated("(?:|)", 300) + "(?!))",
                                     "()" + repeated("(?:|)", 300) + "\\1(?!)"}) {
    const Json replace{{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", "x"}};
    for (const char* part : {"normalizer", "decoder"}) {
      Json document = readJsonFile(kGoldens + "gpt2.json");
      document[part] = replace;
      EXPECT_THAT(errorOf([&] { Tokenizer::fromJson(document, Json(), "t.json"); }),
                  testing::AnyOf(HasSubstr("too many steps even on the empty text"), HasSubstr("retry-limit")))
          << part << ": " << pattern;
    }
  }
}

TEST(TokenizerLimitsTest, TheMeterOfAStreamStopsItsDecoder) {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  document["decoder"] = {{"type", "Replace"}, {"pattern", {{"Regex", "(a|b)+"}}}, {"content", ""}};
  const auto tokenizer = Tokenizer::fromJson(document, Json(), "t.json");
  const int32_t id = tokenizer->tokenId("a").value();
  WorkMeter meter({.work = 1 << 10});
  IncrementalDetokenizer stream(tokenizer, false, &meter);
  EXPECT_THROW(
      {
        for (int i = 0; i < 10'000; ++i) EXPECT_EQ(stream.feed(id), "");
      },
      WorkStopped);
}

}  // namespace
}  // namespace chorus
