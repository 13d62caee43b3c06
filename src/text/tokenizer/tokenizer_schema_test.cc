#include "text/tokenizer/tokenizer_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

const std::string kGoldens = CHORUS_SOURCE_DIR "/tests/goldens/text/tokenizers/";

// A document with every kind of part that the schema knows.
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
  try {
    parseTokenizerJson(text, "tokenizer.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
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
      {"/post_processor/processors/1/special_tokens/<s>/ids", {1, 2}},
      {"/post_processor/processors/1/special_tokens/<s>/tokens/0", 1},
      {"/post_processor/processors/2/sep/0", 7},
      {"/unknown", 1},
  };
  for (const auto& [pointer, value] : kCases) {
    Json document = wholeDocument();
    document[Json::json_pointer(pointer)] = value;
    EXPECT_NE(refusalOf(document.dump()), "") << pointer << " " << value;
  }
}

TEST(TokenizerSchema, AKeyTwiceIsRefused) {
  EXPECT_THAT(refusalOf(R"({"version":"1.0","model":{"type":"BPE","type":"BPE"}})"), HasSubstr("twice"));
}

TEST(TokenizerSchema, WhatOlderFilesLeaveOutIsNotAskedFor) {
  Json document = wholeDocument();
  for (const char* name : {"version", "truncation", "padding", "normalizer", "added_tokens"}) document.erase(name);
  document["model"].erase("type");
  document["decoder"] = nullptr;
  EXPECT_EQ(refusalOf(document.dump()), "");
}

}  // namespace
}  // namespace chorus
