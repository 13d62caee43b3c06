// Compares ids and texts with SentencePiece's own, which tests/oracle/text_sentencepiece_goldens.py recorded.
#include "text/tokenizer/sentencepiece_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/testing/error_of.h"
#include "support/test_paths.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/sentencepiece/";

class ModelDirectory : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / ("chorus_sentencepiece_" + std::to_string(getpid()) + info->name());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void writeModel(const std::string& name) { fs::copy_file(kGoldens + name + ".model", dir_ / "tokenizer.model"); }
  void write(const char* name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  std::string errorOfLoad() {
    try {
      Tokenizer::load(dir_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  fs::path dir_;
};

TEST_F(ModelDirectory, EqualsSentencePiece) {
  for (const std::string name : {"bpe", "unigram", "unigram_bytes"}) {
    writeModel(name);
    write("tokenizer_config.json", R"({"add_bos_token": false})");
    const auto tokenizer = Tokenizer::load(dir_);
    std::ifstream rows(kGoldens + name + ".jsonl");
    int compared = 0;
    for (std::string line; std::getline(rows, line); ++compared) {
      const Json row = parseJson(line, name);
      const auto text = row["text"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, true), row["ids"].get<Ids>()) << name << ": " << row["text"];
      // SentencePiece decodes the unknown token as U+2047, a tokenizer.json decodes it as its own text or as nothing.
      const auto decoded = row["decoded"].get<std::string>();
      if (decoded.find("\xE2\x81\x87") != std::string::npos) continue;
      EXPECT_EQ(tokenizer->decode(row["ids"].get<Ids>(), true), decoded) << name << ": " << row["text"];
    }
    EXPECT_GT(compared, 300);
    fs::remove(dir_ / "tokenizer.model");
  }
}

TEST_F(ModelDirectory, AddsTheTokensThatTheConfigAsksFor) {
  writeModel("bpe");
  const auto plain = Tokenizer::load(dir_);
  EXPECT_EQ(plain->bosId(), 1);
  EXPECT_EQ(plain->eosId(), 2);
  Ids ids = plain->encode("hello", true);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_NE(ids.back(), 2);
  EXPECT_EQ(plain->encode("hello</s>", false).back(), 2) << "control tokens are special in text";
  write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true})");
  ids = Tokenizer::load(dir_)->encode("hello", true);
  EXPECT_NE(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
}

TEST_F(ModelDirectory, LegacySaysWhereASpaceIsAdded) {
  writeModel("bpe");
  const auto legacy = Tokenizer::load(dir_);
  EXPECT_EQ(legacy->tokenText(legacy->encode("</s>hello", false)[1]).find("\xE2\x96\x81"), 0u);
  EXPECT_EQ(legacy->encode(" hello", false).size(), legacy->encode("hello", false).size() + 1);
  write("tokenizer_config.json", R"({"legacy": false})");
  const auto modern = Tokenizer::load(dir_);
  EXPECT_NE(modern->tokenText(modern->encode("</s>hello", false)[1]).find("\xE2\x96\x81"), 0u);
  EXPECT_EQ(modern->encode(" hello", false), modern->encode("hello", false));
}

TEST_F(ModelDirectory, ReadsAddedTokensAndTemplatesOfItsFiles) {
  writeModel("bpe");
  const auto end = static_cast<int>(Tokenizer::load(dir_)->vocabSize());
  write("added_tokens.json", "{\"<pad>\": " + std::to_string(end) + "}");
  write("special_tokens_map.json", R"({"pad_token": "<pad>"})");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  auto tokenizer = Tokenizer::load(dir_);
  EXPECT_EQ(tokenizer->padId(), end);
  EXPECT_TRUE(tokenizer->isSpecial(end));
  EXPECT_EQ(tokenizer->chatTemplates().at("default"), "config");
  write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(Tokenizer::load(dir_)->chatTemplates().at("default"), "config");
  write("chat_template.jinja", "file");
  tokenizer = Tokenizer::load(dir_);
  EXPECT_EQ(tokenizer->chatTemplates().at("default"), "file");
  EXPECT_EQ(tokenizer->chatTemplates().at("rag"), "rag");
}

TEST_F(ModelDirectory, ProcessorTemplatesComeLast) {
  writeModel("bpe");
  write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(Tokenizer::load(dir_)->chatTemplates().at("default"), "processor");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Tokenizer::load(dir_)->chatTemplates().at("default"), "config");
}

TEST_F(ModelDirectory, AnotherDirectoryFillsInWhatIsMissing) {
  writeModel("bpe");
  write("tokenizer_config.json", R"({"chat_template": "base", "add_bos_token": false})");
  write("adapter/chat_template.jinja", "adapter");
  const auto filesOf = [](const std::filesystem::path& dir) { return readTokenizerFileSet(*Directory::open(dir)); };
  const TokenizerFileSet adapter = filesOf(dir_ / "adapter"), base = filesOf(dir_);
  const TokenizerFiles files = parseTokenizerFiles(adapter, &base);
  const auto tokenizer = Tokenizer::fromJson(files.tokenizer, files.config, files.source);
  EXPECT_EQ(tokenizer->chatTemplates().at("default"), "adapter");
  EXPECT_NE(tokenizer->encode("hello", true).front(), 1);
  EXPECT_FALSE(adapter.hasTokenizer());
  EXPECT_NE(adapter.digest(), base.digest());
  EXPECT_THROW(readTokenizerFiles(dir_ / "adapter"), Error);
}

// Every way to cut a piece is tried, so the cost of a piece grows with the square of its length.
TEST(SentencePieceImportTest, MergesAreFoundWithinTheLimitOnWork) {
  SentencePieceModel model;
  model.kind = SentencePieceModel::Kind::kBpe;
  for (int i = 0; i < 40; ++i) model.pieces.push_back({.text = std::to_string(100 + i) + std::string(4000, 'a')});
  Json config;
  WorkMeter meter({.work = uint64_t{64} << 20});
  EXPECT_THAT(errorOf([&] { importSentencePiece(model, config, "m", meter); }),
              testing::HasSubstr("the limit of 67108864 bytes of work"));
  model.pieces.resize(3);
  WorkMeter enough({.work = uint64_t{64} << 20});
  importSentencePiece(model, config, "m", enough);
  EXPECT_GT(enough.spent(), uint64_t{3} * 4000 * 4000);
}

TEST_F(ModelDirectory, RefusesWhatIsNoModel) {
  write("tokenizer.model", "vocabulary\n");
  EXPECT_THAT(errorOfLoad(), testing::HasSubstr("tokenizer.model: not a sentencepiece model"));
  write("tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  EXPECT_THAT(errorOfLoad(), testing::HasSubstr("tokenizer.model: a Git LFS pointer"));
}

}  // namespace
}  // namespace chorus
