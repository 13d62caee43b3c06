#include "server/model/adapter_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

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
    fs::create_directories(root / dir);
    std::ofstream(root / dir / name) << text;
  }
  static std::string tokenizer(const std::string& more) {
    return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1)" + more + R"(}, "merges": []}, "added_tokens": [],
               "decoder": {"type": "Fuse"}})";
  }
  static std::string rendered(const TextCodec& text) { return text.renderChat(OrderedJson::array(), nullptr, {}); }

  fs::path root;
  std::shared_ptr<const TextCodec> base;
};

TEST_F(AdapterTextsTest, WithoutFilesOfItsOwnItIsTheBase) {
  AdapterTexts texts(base, root / "base", 2);
  write("plain", "adapter_config.json", "{}");
  EXPECT_EQ(texts.load(root / "plain"), base);
  fs::copy(root / "base", root / "copy");
  EXPECT_EQ(texts.load(root / "copy"), base) << "the same files are the same text";
}

TEST_F(AdapterTextsTest, ATemplateAloneKeepsTheTokenizer) {
  AdapterTexts texts(base, root / "base", 2);
  write("styled", "chat_template.jinja", "adapter");
  const auto text = texts.load(root / "styled");
  EXPECT_EQ(rendered(*text), "adapter");
  EXPECT_EQ(text->encode("ab", false), base->encode("ab", false));
  EXPECT_EQ(rendered(*base), "base");
}

TEST_F(AdapterTextsTest, ItsOwnTokenizerIsUsedAndShared) {
  AdapterTexts texts(base, root / "base", 3);
  for (const char* dir : {"one", "two"}) {
    write(dir, "tokenizer.json", tokenizer(R"(, "c": 2)"));
    write(dir, "tokenizer_config.json", R"({"eos_token": "c"})");
  }
  const auto one = texts.load(root / "one");
  EXPECT_EQ(one->encode("c", false), std::vector<int32_t>{2});
  EXPECT_EQ(one->eosTokenId(), 2);
  EXPECT_FALSE(one->hasChatTemplate()) << "a tokenizer of its own takes nothing from the base";
  EXPECT_EQ(texts.load(root / "two"), one);
}

TEST_F(AdapterTextsTest, UnusedOnesAreFreed) {
  AdapterTexts texts(base, root / "base", 2);
  write("styled", "chat_template.jinja", "adapter");
  std::weak_ptr<const TextCodec> text = texts.load(root / "styled");
  EXPECT_TRUE(text.expired());
}

TEST_F(AdapterTextsTest, TokensWithoutEmbeddingsAreRefused) {
  AdapterTexts texts(base, root / "base", 2);
  write("grown", "tokenizer.json", tokenizer(R"(, "c": 2)"));
  try {
    texts.load(root / "grown");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("its tokenizer has 3 tokens, but the engine has embeddings for 2"));
  }
}

}  // namespace
}  // namespace chorus::server
