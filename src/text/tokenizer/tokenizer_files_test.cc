// Tokenizers of directories without a tokenizer.json: ids that tests/oracle/text_file_goldens.py recorded.
#include "text/tokenizer/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "support/test_paths.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {
namespace {

using Ids = std::vector<int32_t>;
using testing::HasSubstr;

const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/tokenizers/";

std::vector<Json> readLines(const std::string& name) {
  std::ifstream in(kGoldens + name);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(parseJson(line, name));
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) out.push_back(i + k > bytes.size() ? '=' : kDigits[bits >> (6 * (3 - k)) & 63]);
  }
  return out;
}

std::vector<std::string> tokensById(const Json& vocab) {
  std::vector<std::string> tokens(vocab.size());
  for (const auto& [token, id] : vocab.items()) tokens[id.get<size_t>()] = token;
  return tokens;
}

// The bytes, and then the longer tokens of gpt2.json in their order.
std::vector<std::string> rankedTokens() {
  std::vector<std::string> out;
  for (int byte = 0; byte < 256; ++byte) out.emplace_back(1, static_cast<char>(byte));
  for (const std::string& token : tokensById(readJsonFile(kGoldens + "gpt2.json")["model"]["vocab"])) {
    std::string bytes;
    appendByteLevelToken(bytes, *Utf8View::check(token));
    if (bytes.size() > 1 && token != "<|endoftext|>") out.push_back(bytes);
  }
  return out;
}

std::string tiktokenFile() {
  std::string text;
  size_t rank = 0;
  for (const std::string& token : rankedTokens()) text += base64(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

Json tekkenDocument() {
  Json vocab = Json::array(), special = Json::array();
  for (const std::string& token : rankedTokens()) {
    vocab.push_back({{"rank", vocab.size()}, {"token_bytes", base64(token)}, {"token_str", nullptr}});
  }
  for (const char* token : {"<unk>", "<s>", "</s>", "[INST]"}) {
    special.push_back({{"rank", special.size()}, {"token_str", token}, {"is_control", true}});
  }
  const Json config = {
      {"pattern",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {"default_vocab_size", vocab.size() - 20 + 10},
      {"default_num_special_tokens", 10},
      {"version", "v11"}};
  return {{"config", config}, {"vocab", vocab}, {"special_tokens", special}};
}

TokenizerFileSet vocabAndMerges() {
  const Json model = readJsonFile(kGoldens + "gpt2.json")["model"];
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  return {"d", {{"vocab.json", model["vocab"].dump()}, {"merges.txt", merges}}};
}

TokenizerFileSet vocabText() {
  std::string text;
  for (const std::string& token : tokensById(readJsonFile(kGoldens + "bert.json")["model"]["vocab"]))
    text += token + "\n";
  return {"d", {{"vocab.txt", text}}};
}

// The files of a kind of files.jsonl.
TokenizerFileSet filesOf(const std::string& kind, const Json& config) {
  static const std::map<std::string, std::string> kTiktoken = {{"tiktoken.llama3", "tokenizer.model"},
                                                               {"tiktoken.qwen", "qwen.tiktoken"},
                                                               {"tiktoken.r50k", "r50k_base.tiktoken"},
                                                               {"tiktoken.cl100k", "cl100k_base.tiktoken"},
                                                               {"tiktoken.o200k", "o200k_base.tiktoken"}};
  TokenizerFileSet set{"d", {}};
  if (kind == "vocab_and_merges")
    set = vocabAndMerges();
  else if (kind == "vocab_text")
    set = vocabText();
  else if (kind == "tekken")
    set.files["tekken.json"] = tekkenDocument().dump();
  else
    set.files[kTiktoken.at(kind)] = tiktokenFile();
  if (!config.empty()) set.files["tokenizer_config.json"] = config.dump();
  return set;
}

std::shared_ptr<const Tokenizer> load(const TokenizerFileSet& set) {
  const TokenizerFiles files = parseTokenizerFiles(set);
  return Tokenizer::fromJson(files.tokenizer, files.config, files.source);
}

TEST(TokenizerFilesTest, OtherFilesThanTokenizerJson) {
  const auto strings = readLines("strings.jsonl");
  for (const Json& row : readLines("files.jsonl")) {
    SCOPED_TRACE(row["kind"].dump() + row["config"].dump());
    const auto tokenizer = load(filesOf(row["kind"], row["config"]));
    for (const Json& item : row["cases"]) {
      const auto text = strings[item["string"].get<size_t>()].get<std::string>();
      const Ids ids = item["ids"];
      EXPECT_EQ(tokenizer->encode(text, false), ids) << Json(text).dump();
      EXPECT_EQ(tokenizer->encode(text, true), item.value("special", ids)) << Json(text).dump();
    }
  }
}

// A tokenizer with other files beside it, as tests/oracle/text_configured_goldens.py recorded.
TEST(TokenizerFilesTest, FilesBesideATokenizer) {
  for (const Json& row : readLines("configured.jsonl")) {
    SCOPED_TRACE(row["base"].dump() + row["files"].dump());
    const auto base = row["base"].get<std::string>();
    TokenizerFileSet set{"d", {}};
    if (base == "vocab_and_merges") {
      set = filesOf(base, Json::object());
    } else {
      Json document = readJsonFile(kGoldens + base + ".json");
      document["padding"] = row.value("padding", Json());
      set.files["tokenizer.json"] = document.dump();
    }
    for (const auto& [name, text] : row["files"].items()) set.files[name] = text.get<std::string>();
    const auto tokenizer = load(set);
    for (const auto& [name, content] : row["names"].items()) {
      if (!name.ends_with("_token")) continue;
      EXPECT_EQ(Json(tokenizer->specialTokens().at(name)), content) << name;
    }
    for (const Json& item : row["cases"]) {
      const auto text = item["text"].get<std::string>();
      const Ids ids = item["ids"];
      EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
      EXPECT_EQ(tokenizer->decode(ids, false), item["decoded"].get<std::string>()) << text;
      EXPECT_EQ(tokenizer->decode(ids, true), item["skipped"].get<std::string>()) << text;
    }
  }
}

// vocab.txt: only tokens that are not special are searched for in the normalized text.
TEST(TokenizerFilesTest, TokensOfAddedTokensAreNormalizedUnlessTheyAreSpecial) {
  TokenizerFileSet set{"d", {{"vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"}}};
  set.files["added_tokens.json"] = R"({"<W>": 6, "[X]": 7})";
  EXPECT_EQ(load(set)->encode("<w>[x]", false), (Ids{6, 7}));
  set.files["special_tokens_map.json"] = R"({"eos_token": {"content": "[X]"}})";
  EXPECT_EQ(load(set)->encode("<w>[X]", false), (Ids{6, 7}));
  EXPECT_EQ(load(set)->encode("[x]", false), (Ids{1, 1, 1}));
  EXPECT_EQ(load(set)->decode(Ids{5, 6, 7}, true), "a <w>");
}

// The class names <|endoftext|> as a special token.
TEST(TokenizerFilesTest, TheClassMakesTokensSpecial) {
  TokenizerFileSet set{"d", {{"vocab.json", R"({"a": 0, "b": 1, "c": 2})"}, {"merges.txt", ""}}};
  set.files["tokenizer_config.json"] = R"({"tokenizer_class": "Qwen2Tokenizer"})";
  set.files["added_tokens.json"] = R"({"<|endoftext|>": 3, "<x>": 4})";
  EXPECT_EQ(load(set)->decode(Ids{0, 3, 4, 1}, true), "a<x>b");
}

// Which of the two the library finds at first is random; after the change, only one is left.
TEST(TokenizerFilesTest, OneOfTwoTokensThatNormalizeToTheSameTextChanges) {
  const auto token = [](const char* content, int id, bool normalized) {
    return Json{{"id", id},        {"content", content},       {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", normalized}, {"special", false}};
  };
  const Json model = {
      {"type", "WordLevel"}, {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"[UNK]", 3}}}, {"unk_token", "[UNK]"}};
  const Json document = {{"normalizer", {{"type", "Lowercase"}}},
                         {"added_tokens", Json::array({token("Foo", 4, true), token("foo", 5, true)})},
                         {"model", model}};
  TokenizerFileSet set{"d", {{"tokenizer.json", document.dump()}}};
  EXPECT_EQ(load(set)->encode("foo", false), Ids{4});
  set.files["tokenizer_config.json"] = Json{{"added_tokens_decoder", {{"4", token("Foo", 4, false)}}}}.dump();
  EXPECT_EQ(load(set)->encode("fooFoo", false), (Ids{5, 4}));
}

// Refused by transformers too, though by exceptions of Python.
TEST(TokenizerFilesTest, RefusalsOfFilesBesideATokenizerJson) {
  const std::string tokenizer = readFile(kGoldens + "gpt2.json", size_t{1} << 20);
  const auto refusal = [&](const char* name, const char* text) {
    return errorOf([&] { load({"d", {{"tokenizer.json", tokenizer}, {name, text}}}); });
  };
  const auto config = [&](const char* text) { return refusal("tokenizer_config.json", text); };
  EXPECT_EQ(config(R"({"added_tokens_decoder": []})"),
            "d/tokenizer_config.json: 'added_tokens_decoder' must be an object");
  EXPECT_EQ(config(R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
            "d/tokenizer_config.json: 'added_tokens_decoder' has a key that is not a token id");
  EXPECT_EQ(config(R"({"added_tokens_decoder": {"1": {"content": "a"}, "01": {"content": "b"}}})"),
            "d/tokenizer_config.json: two added tokens have the id 1");
  EXPECT_EQ(config(R"({"bos_token": 5})"),
            "d/tokenizer_config.json: bos_token must be a token: a string, or an object with a 'content'");
  EXPECT_THAT(config(R"({"extra_special_tokens": [null]})"), HasSubstr("extra_special_tokens must be a token"));
  EXPECT_THAT(config(R"({"extra_special_tokens": "a"})"), HasSubstr("'extra_special_tokens' must be a list of tokens"));
  EXPECT_THAT(config(R"({"split_special_tokens": 3})"), HasSubstr("split_special_tokens"));
  EXPECT_EQ(refusal("special_tokens_map.json", "[]"), "d/special_tokens_map.json: expected a JSON object");
  const auto map = [&](const char* text) {
    return errorOf([&] {
      load({"d", {{"tokenizer.json", tokenizer}, {"tokenizer_config.json", "{}"}, {"special_tokens_map.json", text}}});
    });
  };
  EXPECT_EQ(map(R"({"bos_token": 5})"),
            "d/special_tokens_map.json: bos_token must be a token: a string, or an object with a 'content'");
  EXPECT_THAT(map(R"({"x_token": {}})"), HasSubstr("d/special_tokens_map.json: x_token must be a token"));
  EXPECT_THAT(map(R"({"additional_special_tokens": "a"})"),
              HasSubstr("d/special_tokens_map.json: 'additional_special_tokens' must be a list"));
  EXPECT_THAT(map(R"({"extra_special_tokens": [7]})"),
              HasSubstr("d/special_tokens_map.json: extra_special_tokens must"));
  EXPECT_THAT(map(R"({"extra_special_tokens": {"x": 7}})"), HasSubstr("d/special_tokens_map.json: x must be a token"));
  EXPECT_EQ(refusal("added_tokens.json", R"({"a": "b"})"),
            "d/added_tokens.json: the token 'a' has an id that is not a number");
  EXPECT_EQ(refusal("added_tokens.json", R"({"a": 430, "b": 430})"),
            "d/added_tokens.json: two added tokens have the id 430");
}

TEST(TokenizerFilesTest, TokenizersDecodeWhatTheyEncode) {
  const std::string text = "The quick  brown f\u00f6x,\n\u65e5\u672c \U0001F600 it's 1234";
  for (const char* kind : {"vocab_and_merges", "tiktoken.llama3", "tiktoken.cl100k", "tekken"}) {
    const auto tokenizer = load(filesOf(kind, Json::object()));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true), true), text) << kind;
  }
}

TEST(TokenizerFilesTest, SpecialTokensOfRankedFiles) {
  const auto llama = load(filesOf("tiktoken.llama3", Json::object()));
  const auto ranks = static_cast<int32_t>(rankedTokens().size());
  EXPECT_EQ(llama->vocabSize(), ranks + 256);
  EXPECT_EQ(llama->bosId(), ranks);
  EXPECT_EQ(llama->tokenId("<|eot_id|>"), ranks + 9);
  EXPECT_EQ(llama->tokenId("<|reserved_special_token_250|>"), ranks + 255);
  EXPECT_EQ(llama->encode("<|eot_id|>", false), Ids{ranks + 9});
  const auto qwen = load(filesOf("tiktoken.qwen", Json::object()));
  EXPECT_EQ(qwen->tokenId("<|im_end|>"), ranks + 2);
  EXPECT_EQ(qwen->bosId(), std::nullopt);
  const auto tekken = load(filesOf("tekken", Json::object()));
  EXPECT_EQ(tekken->encode("[INST]<SPECIAL_9>", true), (Ids{1, 3, 9}));
  EXPECT_EQ(tekken->eosId(), 2);
  const auto own = load(
      filesOf("tiktoken.llama3",
              {{"added_tokens_decoder", {{std::to_string(ranks + 7), {{"content", "<eot>"}, {"special", true}}}}}}));
  EXPECT_EQ(own->encode("a<eot>", true).back(), ranks + 7);
  EXPECT_EQ(own->tokenId("<|eot_id|>"), std::nullopt);
}

TEST(TokenizerFilesTest, TheFirstKindOfFileCounts) {
  TokenizerFileSet set = vocabText();
  set.files["tekken.json"] = tekkenDocument().dump();
  EXPECT_EQ(load(set)->tokenId("[INST]"), 3);
  set.files["tokenizer.json"] = readFile(kGoldens + "gpt2.json", size_t{1} << 20);
  EXPECT_EQ(load(set)->tokenId("[INST]"), std::nullopt);
}

std::string refusalOf(const TokenizerFileSet& set) {
  return errorOf([&] { load(set); });
}

TEST(TokenizerFilesTest, RefusalsNameTheFile) {
  EXPECT_THAT(refusalOf({"d", {{"merges.txt", ""}}}), HasSubstr("d: no tokenizer found"));
  TokenizerFileSet set = vocabAndMerges();
  set.files["merges.txt"] = "#version: 0.2\na b\na b c\n";
  EXPECT_EQ(refusalOf(set), "d/vocab.json: merges.txt: line 3 must be two tokens with a space between them");
  set.files.erase("merges.txt");
  EXPECT_EQ(refusalOf(set), "d/vocab.json: merges.txt is missing beside this file, and there is no tokenizer.json");
  for (const char* kind : {"vocab_and_merges", "vocab_text"}) {
    EXPECT_THAT(refusalOf(filesOf(kind, {{"tokenizer_class", "WhisperTokenizer"}})),
                HasSubstr("the tokenizer class 'WhisperTokenizer' is not supported without a tokenizer.json"));
  }
  EXPECT_EQ(refusalOf({"d", {{"vocab.txt", "a\n\xFF\n"}}}), "d/vocab.txt: the file is not UTF-8");

  const std::string ranks = tiktokenFile();
  const auto tiktoken = [&](const std::string& text) { return refusalOf({"d", {{"qwen.tiktoken", text}}}); };
  EXPECT_EQ(tiktoken(ranks + "YQ== x\n"), "d/qwen.tiktoken: line " + std::to_string(rankedTokens().size() + 1) +
                                              " must be a token in base64 and a rank");
  EXPECT_EQ(tiktoken(ranks.substr(ranks.find('\n') + 1)), "d/qwen.tiktoken: no token is the single byte 0x00");
  EXPECT_THAT(tiktoken(ranks + "YQ== 9999\n"), HasSubstr("the token 'a' occurs twice"));
  EXPECT_THAT(tiktoken(ranks + base64(std::string(513, 'a')) + " 9999\n"), HasSubstr("a token has 513 bytes"));
  EXPECT_THAT(tiktoken(ranks + "YWFh 5\n"), HasSubstr("two tokens in 'vocab' have the id 5"));

  const auto tekken = [&](const char* pointer, const Json& value) {
    Json document = tekkenDocument();
    document[Json::json_pointer(pointer)] = value;
    return refusalOf({"d", {{"tekken.json", document.dump()}}});
  };
  EXPECT_THAT(tekken("/config", 1), HasSubstr("d/tekken.json: 'config' must be an object"));
  EXPECT_THAT(tekken("/config/default_vocab_size", 5), HasSubstr("default_vocab_size 5 must be at least"));
  EXPECT_THAT(tekken("/config/default_vocab_size", 5000), HasSubstr("default_vocab_size 5000 must be at least"));
  EXPECT_THAT(tekken("/config/default_num_special_tokens", 3), HasSubstr("the rank 3 is taken"));
  EXPECT_THAT(tekken("/config/default_num_special_tokens", 20000), HasSubstr("20000 is more than 16384"));
  EXPECT_THAT(tekken("/special_tokens/1/rank", 0), HasSubstr("the rank 0 is taken"));
  EXPECT_THAT(tekken("/vocab/7/rank", 8), HasSubstr("token 7 of 'vocab'"));
  EXPECT_THAT(tekken("/vocab/7/token_bytes", "?"), HasSubstr("token 7 of 'vocab'"));
  EXPECT_THAT(tekken("/special_tokens/1/token_str", "a"), HasSubstr("the token 'a' occurs twice"));
}

}  // namespace
}  // namespace chorus
