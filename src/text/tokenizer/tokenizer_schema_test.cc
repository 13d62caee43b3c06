#include "text/tokenizer/tokenizer_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/tokenizers/";

// A document with every kind of component that the schema covers.
Json wholeDocument() {
  Json document = readJsonFile(kGoldens + "gpt2.json");
  document["truncation"] = {{"direction", "Right"}, {"max_length", 512}, {"strategy", "LongestFirst"}, {"stride", 0}};
  document["padding"] = {
      {"strategy", {{"Fixed", 8}}}, {"direction", "Left"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 0},
      {"pad_type_id", 0},           {"pad_token", "!"}};
  document["added_tokens"] = Json::array({{{"id", 0},
                                           {"content", "!"},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}}});
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  document["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {byte_level, {{"type", "Punctuation"}, {"behavior", "Isolated"}}}}};
  document["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {byte_level, {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"split", true}}}}};
  const auto sequence = [](const char* id) { return Json{{"Sequence", {{"id", id}, {"type_id", 0}}}}; };
  const Json begin = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  document["post_processor"] = {{"type", "Sequence"},
                                {"processors",
                                 {byte_level,
                                  {{"type", "TemplateProcessing"},
                                   {"single", {begin, sequence("A")}},
                                   {"pair", {begin, sequence("A"), sequence("B")}},
                                   {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}},
                                  {{"type", "RobertaProcessing"}, {"sep", {"!", 0}}, {"cls", {"!", 0}}}}}};
  return document;
}

std::string refusalOf(const std::string& text) {
  return errorOf([&] { parseTokenizerJson(text, "tokenizer.json"); });
}

TEST(TokenizerSchema, WholeDocumentPasses) {
  const Json document = wholeDocument();
  EXPECT_EQ(parseTokenizerJson(document.dump(), "x"), document);
}

// Every field without which Hugging Face's reader refuses the document.
TEST(TokenizerSchema, MissingFields) {
  for (const char* pointer : {"/truncation/max_length",
                              "/truncation/strategy",
                              "/truncation/stride",
                              "/padding/strategy",
                              "/padding/direction",
                              "/padding/pad_id",
                              "/padding/pad_type_id",
                              "/padding/pad_token",
                              "/added_tokens/0/id",
                              "/added_tokens/0/content",
                              "/added_tokens/0/single_word",
                              "/added_tokens/0/lstrip",
                              "/added_tokens/0/rstrip",
                              "/added_tokens/0/normalized",
                              "/added_tokens/0/special",
                              "/pre_tokenizer/pretokenizers/0/add_prefix_space",
                              "/pre_tokenizer/pretokenizers/0/trim_offsets",
                              "/decoder/decoders/0/add_prefix_space",
                              "/post_processor/processors/0/trim_offsets",
                              "/post_processor/processors/1/single",
                              "/post_processor/processors/1/pair",
                              "/post_processor/processors/1/special_tokens",
                              "/post_processor/processors/1/single/0/SpecialToken/type_id",
                              "/post_processor/processors/1/pair/2/Sequence/id",
                              "/post_processor/processors/1/special_tokens/<s>/tokens"}) {
    Json document = wholeDocument();
    const Json::json_pointer path(pointer);
    ASSERT_TRUE(document.contains(path)) << pointer;
    document.at(path.parent_pointer()).erase(path.back());
    EXPECT_THAT(refusalOf(document.dump()), HasSubstr(path.back())) << pointer;
  }
}

TEST(TokenizerSchema, WrongValues) {
  const std::pair<const char*, Json> kCases[] = {
      {"/version", "2.0"},
      {"/version", 1},
      {"/truncation", true},
      {"/truncation/direction", "Up"},
      {"/truncation/max_length", -1},
      {"/padding/strategy", "Longest"},
      {"/padding/strategy/More", 1},
      {"/padding/pad_id", 1LL << 32},
      {"/padding/pad_to_multiple_of", 1.5},
      {"/added_tokens", nullptr},
      {"/added_tokens/0/special", nullptr},
      {"/added_tokens/0/id", -1},
      {"/model", Json::array()},
      {"/model/type", nullptr},
      {"/pre_tokenizer/pretokenizers/0/use_regex", nullptr},
      {"/pre_tokenizer/pretokenizers/1/behavior", nullptr},
      {"/decoder/decoders/1/prepend_scheme", "x"},
      {"/decoder/decoders/1/split", "yes"},
      {"/post_processor/processors/1/pair/0", Json::object()},
      {"/post_processor/processors/1/pair/0", {{"Other", 1}}},
      {"/post_processor/processors/1/pair/1/Sequence/id", "C"},
      {"/post_processor/processors/1/special_tokens/<s>/ids", {1.0}},
      {"/post_processor/processors/1/special_tokens/<s>/id", nullptr},
      {"/post_processor/processors/1/special_tokens/<s>/tokens/0", 1},
      {"/post_processor/processors/2/sep/0", 7},
      {"/post_processor/processors/2/cls", {"!", 0, 0}},
      {"/normalizer", {{"type", "Prepend"}}},
      {"/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}, {"Regex", "a"}}}, {"content", ""}}},
      {"/normalizer", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", nullptr}}},
      {"/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}},
      {"/pre_tokenizer", {{"type", "Digits"}}},
      {"/decoder", {{"type", "Strip"}, {"content", " "}, {"start", 1.0}, {"stop", 0}}},
      {"/decoder/decoders/1/str_rep", 5},
      {"/model/fuse_unk", 1},
      {"/model/unk_token", 1},
      {"/model/merges", {"a b", {"a", "b"}}},
      {"/model", {{"vocab", Json::array()}, {"byte_fallback", nullptr}}},
      {"/unknown", 1},
  };
  for (const auto& [pointer, value] : kCases) {
    Json document = wholeDocument();
    document[Json::json_pointer(pointer)] = value;
    EXPECT_NE(refusalOf(document.dump()), "") << pointer << " " << value;
  }
}

TEST(TokenizerSchema, RefusalsNameThePart) {
  const auto refusal = [](const char* pointer, const Json& value) {
    Json document = wholeDocument();
    document[Json::json_pointer(pointer)] = value;
    return refusalOf(document.dump());
  };
  EXPECT_EQ(refusal("/added_tokens/0/special", 1), "tokenizer.json: added_tokens[0]: 'special' must be true or false");
  EXPECT_EQ(refusal("/pre_tokenizer/pretokenizers/0/trim_offsets", 1),
            "tokenizer.json: pre_tokenizer.Sequence: pretokenizers[0].ByteLevel: 'trim_offsets' must be true or false");
  EXPECT_EQ(refusal("/padding/strategy", "Longest"), "tokenizer.json: padding: 'strategy' must be \"BatchLongest\"");
  EXPECT_EQ(refusal("/truncation/direction", "Up"),
            "tokenizer.json: truncation: 'direction' must be one of \"Left\", \"Right\"");
  EXPECT_EQ(refusal("/un\nknown", 1), "tokenizer.json: unknown field 'un?known'");
}

TEST(TokenizerSchema, AKeyTwiceIsRefusedSaveInTheVocabulary) {
  EXPECT_THAT(refusalOf(R"({"version":"1.0","model":{"type":"BPE","type":"BPE"}})"), HasSubstr("twice"));
  EXPECT_EQ(refusalOf(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})"), "");
}

// Hugging Face's reader identifies post-processors by their fields, whatever their type says.
TEST(TokenizerSchema, APostProcessorOfTwoTypesIsRefused) {
  Json document = wholeDocument();
  Json& byte_level = document["post_processor"]["processors"][0];
  byte_level["sep"] = byte_level["cls"] = {"!", 0};
  EXPECT_THAT(refusalOf(document.dump()), HasSubstr("the type ByteLevel but the fields of a RobertaProcessing"));
}

TEST(TokenizerSchema, MetaspaceSaysOneThingOfThePrefix) {
  const auto refusal = [](Json fields) {
    Json document = wholeDocument();
    document["decoder"] = {{"type", "Metaspace"}, {"replacement", "_"}};
    document["decoder"].update(fields);
    return refusalOf(document.dump());
  };
  EXPECT_EQ(refusal({{"add_prefix_space", true}, {"str_rep", "_"}}), "");
  EXPECT_EQ(refusal({{"add_prefix_space", nullptr}, {"split", nullptr}, {"str_rep", nullptr}}), "");
  EXPECT_EQ(refusal({{"add_prefix_space", false}, {"prepend_scheme", "never"}}), "");
  EXPECT_THAT(refusal({{"add_prefix_space", false}}), HasSubstr("'prepend_scheme' is not \"never\""));
  EXPECT_THAT(refusal({{"add_prefix_space", false}, {"prepend_scheme", "first"}}), HasSubstr("'prepend_scheme'"));
}

TEST(TokenizerSchema, FieldsThatOlderFilesLackAreOptional) {
  Json document = wholeDocument();
  for (const char* name : {"version", "truncation", "padding", "normalizer", "added_tokens"}) document.erase(name);
  document["model"].erase("type");
  for (const char* name : {"dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"})
    document["model"].erase(name);
  document["model"]["merges"] = {"a b", "b c"};
  document["decoder"] = nullptr;
  EXPECT_EQ(refusalOf(document.dump()), "");
}

}  // namespace
}  // namespace chorus
