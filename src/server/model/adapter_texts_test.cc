#include "server/model/adapter_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing/error_of.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

class AdapterTextsTest : public ::testing::Test {
 protected:
  AdapterTextsTest() {
    std::string pattern = (fs::temp_directory_path() / "chorus-texts-XXXXXX").string();
    root = mkdtemp(pattern.data());
    write("base", "tokenizer.json", tokenizer(""));
    write("base", "tokenizer_config.json", R"({"chat_template": "base", "eos_token": "a"})");
    base = loadTextCodec(root / "base");
  }
  ~AdapterTextsTest() override { fs::remove_all(root); }

  void write(const char* dir, const char* name, const std::string& text) {
    fs::create_directories((root / dir / name).parent_path());
    std::ofstream(root / dir / name) << text;
  }
  static std::string tokenizer(const std::string& more) {
    return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1)" + more + R"(}, "merges": []}, "added_tokens": [],
               "decoder": {"type": "Fuse"}})";
  }
  std::shared_ptr<const TextCodec> load(AdapterTexts& texts, const char* dir) {
    WorkMeter meter;
    return texts.load(*Directory::open(root / dir, Links::kInside), meter);
  }
  std::string refusal(AdapterTexts& texts, const char* dir) {
    return errorOf([&] { load(texts, dir); });
  }
  static std::string rendered(const TextCodec& text) {
    WorkMeter meter;
    return text.renderChat(OrderedJson::array(), {}, meter);
  }

  fs::path root;
  std::shared_ptr<const TextCodec> base;
};

TEST_F(AdapterTextsTest, AnAdapterWithoutTextFilesUsesTheBaseModelsText) {
  AdapterTexts texts(base, root / "base", 2);
  write("plain", "adapter_config.json", "{}");
  EXPECT_EQ(load(texts, "plain"), base);
  fs::copy(root / "base", root / "copy");
  EXPECT_EQ(load(texts, "copy"), base) << "the same files are the same text";
}

TEST_F(AdapterTextsTest, ATemplateAloneKeepsTheTokenizer) {
  AdapterTexts texts(base, root / "base", 2);
  write("styled", "chat_template.jinja", "adapter");
  const auto text = load(texts, "styled");
  EXPECT_EQ(rendered(*text), "adapter");
  EXPECT_EQ(text->encode("ab", false), base->encode("ab", false));
  EXPECT_EQ(rendered(*base), "base");
}

TEST_F(AdapterTextsTest, AnAdaptersOwnTokenizerIsUsedAndShared) {
  AdapterTexts texts(base, root / "base", 3);
  for (const char* dir : {"one", "two"}) {
    write(dir, "tokenizer.json", tokenizer(R"(, "c": 2)"));
    write(dir, "tokenizer_config.json", R"({"eos_token": "c"})");
  }
  const auto one = load(texts, "one");
  EXPECT_EQ(one->encode("c", false), std::vector<int32_t>{2});
  EXPECT_EQ(one->eosTokenId(), 2);
  EXPECT_FALSE(one->hasChatTemplate()) << "a tokenizer of its own takes nothing from the base";
  EXPECT_EQ(load(texts, "two"), one);
}

TEST_F(AdapterTextsTest, UnusedTextsAreFreed) {
  AdapterTexts texts(base, root / "base", 2);
  write("styled", "chat_template.jinja", "adapter");
  std::weak_ptr<const TextCodec> text = load(texts, "styled");
  EXPECT_TRUE(text.expired());
}

TEST_F(AdapterTextsTest, TokensWithoutEmbeddingsAreRefused) {
  AdapterTexts texts(base, root / "base", 2);
  write("grown", "tokenizer.json", tokenizer(R"(, "c": 2)"));
  EXPECT_THAT(refusal(texts, "grown"),
              testing::HasSubstr("its tokenizer has at least 3 tokens, but the engine has embeddings for 2"));
}

// Added tokens that a normalizer makes dear: each of them costs more than 20,000 bytes of work.
Json dearTokens(size_t count) {
  Json added = Json::object();
  for (size_t i = 0; i < count; ++i) {
    added[std::to_string(2 + i)] = {{"content", std::to_string(i) + std::string(1000, 'a')}, {"normalized", true}};
  }
  return {{"added_tokens_decoder", std::move(added)}};
}

TEST_F(AdapterTextsTest, AddedTokensAreNormalizedWithinTheLimitOnWork) {
  Json document = Json::parse(tokenizer(""));
  document["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "(a|b)*c"}}}, {"content", "d"}};
  write("dear", "tokenizer.json", document.dump());
  write("dear", "tokenizer_config.json", dearTokens(500).dump());
  const auto directory = Directory::open(root / "dear", Links::kInside);
  AdapterTexts large(base, root / "base", 1000);
  WorkMeter unlimited;
  large.load(*directory, unlimited);
  EXPECT_GT(unlimited.spent(), uint64_t{10} << 20);
  WorkMeter limited({.work = uint64_t{8} << 20});
  AdapterTexts other(base, root / "base", 1000);
  EXPECT_THAT(errorOf([&] { other.load(*directory, limited); }),
              testing::AllOf(testing::HasSubstr("dear: its tokenizer or a template costs too much"),
                             testing::HasSubstr("the limit of 8388608 bytes of work")));
  EXPECT_EQ(other.used(), 0u);
  // A tokenizer with more tokens than the engine has embeddings is refused before its added tokens are normalized.
  AdapterTexts small(base, root / "base", 2);
  WorkMeter little({.work = uint64_t{1} << 20});
  EXPECT_THAT(errorOf([&] { small.load(*directory, little); }),
              testing::HasSubstr("its tokenizer has at least 3 tokens, but the engine has embeddings for 2"));
}

TEST_F(AdapterTextsTest, TemplatesAreCompiledWithinTheLimitOnWork) {
  AdapterTexts texts(base, root / "base", 2);
  write("styled", "chat_template.jinja", std::string(500'000, 'x') + "{{ messages }}");
  WorkMeter meter({.work = 700'000});
  EXPECT_THAT(errorOf([&] { texts.load(*Directory::open(root / "styled", Links::kInside), meter); }),
              testing::HasSubstr("styled: its tokenizer or a template costs too much"));
}

TEST_F(AdapterTextsTest, AllTextsShareAMemoryLimitAndGiveTheirShareBack) {
  const std::string filler(10'000, ' ');
  for (int i = 0; const char* name : {"one", "two", "three", "four", "five"}) {
    write(name, "tokenizer.json", tokenizer("") + filler + std::string(++i, ' '));
  }
  // There is room for four tokenizers, each of which may fill a cache of 2 MiB.
  AdapterTexts texts(base, root / "base", 2, {.memory_bytes = size_t{9} << 20});
  auto one = load(texts, "one");
  const size_t used = texts.used();
  EXPECT_GT(used, filler.size());
  EXPECT_EQ(load(texts, "one"), one);
  EXPECT_EQ(texts.used(), used) << "equal files are charged once";
  const std::vector<std::shared_ptr<const TextCodec>> more{load(texts, "two"), load(texts, "three"),
                                                           load(texts, "four")};
  EXPECT_EQ(texts.used(), 4 * used);
  EXPECT_THAT(refusal(texts, "five"), testing::HasSubstr("raise --adapter_text_memory"));
  EXPECT_EQ(texts.used(), 4 * used);
  one.reset();
  EXPECT_EQ(texts.used(), 3 * used);
  EXPECT_NE(load(texts, "five"), nullptr);
}

TEST_F(AdapterTextsTest, OneAdapterMayKeepAQuarterOfTheMemory) {
  write("one", "tokenizer.json", tokenizer("") + " ");
  AdapterTexts texts(base, root / "base", 2, {.memory_bytes = size_t{8} << 20});
  EXPECT_THAT(refusal(texts, "one"),
              testing::HasSubstr("but those of one adapter may take 2.0 MiB, a quarter of --adapter_text_memory"));
  EXPECT_EQ(texts.used(), 0u);
}

TEST_F(AdapterTextsTest, WithoutParsingOnlyTextsInMemoryAreFound) {
  write("plain", "adapter_config.json", "{}");
  write("styled", "chat_template.jinja", "adapter");
  AdapterTexts texts(base, root / "base", 2);
  WorkMeter meter;
  const auto find = [&](const char* dir) {
    return texts.load(*Directory::open(root / dir, Links::kInside), meter, false);
  };
  EXPECT_EQ(find("plain"), base);
  EXPECT_EQ(find("styled"), nullptr);
  const auto text = load(texts, "styled");
  EXPECT_EQ(find("styled"), text);
}

TEST_F(AdapterTextsTest, TextsAreRefusedUnlessTrusted) {
  AdapterTexts texts(base, root / "base", 2, {.trusted = false});
  write("styled", "chat_template.jinja", "adapter");
  write("listed", "additional_chat_templates/x.jinja", "adapter");
  write("plain", "adapter_config.json", "{}");
  fs::copy(root / "base", root / "copy");
  EXPECT_THAT(refusal(texts, "styled"),
              testing::HasSubstr("--trust_adapter_text off does not allow; remove chat_template.jinja"));
  EXPECT_THAT(refusal(texts, "listed"), testing::HasSubstr("--trust_adapter_text off"));
  EXPECT_EQ(load(texts, "plain"), base);
  EXPECT_EQ(load(texts, "copy"), base) << "the base model's own files";
}

TEST_F(AdapterTextsTest, LargeFilesAreRefusedUnread) {
  AdapterTexts texts(base, root / "base", 2);
  write("large", "tokenizer.json", "{}");
  fs::resize_file(root / "large/tokenizer.json", AdapterTexts::kMaxFileBytes + 1);
  EXPECT_THAT(refusal(texts, "large"), testing::HasSubstr("the limit is 33554432"));
  write("many", "tokenizer.json", "{}");
  for (const char* name : {"tokenizer.json", "special_tokens_map.json", "added_tokens.json"}) {
    write("many", name, "{}");
    fs::resize_file(root / "many" / name, AdapterTexts::kMaxTotalBytes / 2);
  }
  EXPECT_THAT(refusal(texts, "many"), testing::HasSubstr("exceed the limit of 67108864"));
  for (int i = 0; i < 65; ++i)
    write("wordy", ("additional_chat_templates/" + std::to_string(i) + ".jinja").c_str(), "x");
  EXPECT_THAT(refusal(texts, "wordy"), testing::HasSubstr("more than 64 templates"));
}

TEST_F(AdapterTextsTest, LinksInTheDirectoryOfTemplatesAreConfined) {
  AdapterTexts texts(base, root / "base", 2);
  write("linked", "additional_chat_templates/a.jinja", "mine");
  write("secret", "file.jinja", "secret");
  fs::create_symlink("../../secret/file.jinja", root / "linked/additional_chat_templates/b.jinja");
  EXPECT_THAT(refusal(texts, "linked"), testing::HasSubstr("a link that leads"));
  fs::remove_all(root / "linked/additional_chat_templates");
  fs::create_directory_symlink("../secret", root / "linked/additional_chat_templates");
  EXPECT_EQ(load(texts, "linked"), base) << "what lies elsewhere is not there";
}

}  // namespace
}  // namespace chorus::server
