#include "checkpoint/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "checkpoint/writer.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "checkpoint.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    config_.architecture = "Tiny";
    config_.dtype = DType::kFloat32;
    config_.vocab_size = 4;
    config_.hidden_size = 2;
    config_.num_hidden_layers = 1;
    config_.num_attention_heads = 1;
    config_.hidden_act = "silu";
    config_.finalize("test");
    table_ = {{.name = "transformer.vocab_embedding.weight", .shape = {4, 2}, .stage = Stage::kFirst},
              {.name = "transformer.layers.{layer}.norm.weight", .shape = {2}},
              {.name = "lm_head.weight", .shape = {4, 2}, .stage = Stage::kLast}};
  }
  void TearDown() override { fs::remove_all(dir_); }

  void write(const WeightTable& table) {
    CheckpointWriter writer(dir_ / "ckpt", config_, table);
    for (const RankTensor& tensor : writer.tensors(0)) {
      size_t count = 1;
      for (const int64_t extent : tensor.shape) count *= static_cast<size_t>(extent);
      const std::vector<float> values(count, 0.5f);
      writer.write(0, tensor.name, 0, std::as_bytes(std::span(values)));
    }
    writer.publish();
  }
  // The refusal of a directory that has only this config.json.
  std::string refusalOfConfig(const std::string& config) {
    fs::create_directories(dir_ / "other");
    writeFileAtomically(dir_ / "other/config.json", config);
    return errorOf([&] { CheckpointReader::open(dir_ / "other"); });
  }
  std::string refusal(const WeightTable& table) {
    return errorOf([&] { CheckpointReader::open(dir_ / "ckpt").rank(0, table); });
  }

  fs::path dir_;
  ModelConfig config_;
  WeightTable table_;
};

TEST_F(CheckpointReaderTest, GivesViewsOfACompleteRank) {
  write(table_);
  const CheckpointReader reader = CheckpointReader::open(dir_ / "ckpt");
  EXPECT_EQ(reader.config().toJson(), config_.toJson());
  const RankWeights weights = reader.rank(0, table_);
  EXPECT_EQ(weights.tensors().size(), 3u);
  EXPECT_EQ(loadAsFloat(weights.get("transformer.layers.0.norm.weight").bytes.data(), DType::kFloat32, 1), 0.5f);
  EXPECT_THAT(errorOf([&] { weights.get("nothing"); }), HasSubstr("'nothing' is missing"));
}

TEST_F(CheckpointReaderTest, NamesWhatIsWrong) {
  write(table_);
  WeightTable other = table_;
  other.push_back({.name = "transformer.layers.{layer}.bias", .shape = {2}});
  EXPECT_THAT(refusal(other), HasSubstr("Required but not provided tensors: transformer.layers.0.bias"));
  other = table_;
  other.erase(other.begin() + 1);
  EXPECT_THAT(refusal(other), HasSubstr("Provided but not required tensors: transformer.layers.0.norm.weight"));
  const std::string ignored[] = {"*.norm.weight"};
  EXPECT_EQ(errorOf([&] { CheckpointReader::open(dir_ / "ckpt").rank(0, other, ignored); }), "");
  other = table_;
  other[1].shape = {3};
  EXPECT_THAT(refusal(other), HasSubstr("has shape [2], config.json asks for [3]"));
  Json json = config_.toJson();
  json["dtype"] = "float16";
  writeFileAtomically(dir_ / "ckpt" / "config.json", json.dump());
  EXPECT_THAT(refusal(table_), HasSubstr("is float32, config.json asks for float16"));
  json["quantization"]["quant_algo"] = "FP8";
  writeFileAtomically(dir_ / "ckpt" / "config.json", json.dump());
  EXPECT_THAT(refusal(table_), HasSubstr("quant_algo 'FP8'"));
  fs::remove(dir_ / "ckpt" / "rank0.safetensors");
  json["quantization"]["quant_algo"] = nullptr;
  writeFileAtomically(dir_ / "ckpt" / "config.json", json.dump());
  EXPECT_THAT(refusal(table_), HasSubstr("rank0.safetensors: missing"));
  writeFileAtomically(dir_ / "ckpt" / "config.json", "{\"dtype\": \"float16\",}");
  EXPECT_THAT(refusal(table_), HasSubstr("config.json: malformed JSON at line 1 column"));
}

TEST_F(CheckpointReaderTest, TheHeadDecidesWhetherTheEmbeddingIsShared) {
  write(table_);
  EXPECT_FALSE(CheckpointReader::open(dir_ / "ckpt").config().tie_word_embeddings);
  table_.pop_back();
  write(table_);
  EXPECT_TRUE(CheckpointReader::open(dir_ / "ckpt").config().tie_word_embeddings);
}

TEST_F(CheckpointReaderTest, AnUnpublishedWriterLeavesTheOldCheckpoint) {
  write(table_);
  {
    const CheckpointWriter writer(dir_ / "ckpt", config_, table_);
  }
  EXPECT_EQ(refusal(table_), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(CheckpointReaderTest, AHuggingFaceModelIsNamed) {
  for (const char* config : {R"({"architectures": ["LlamaForCausalLM"]})", R"({"model_type": "llama"})"}) {
    EXPECT_THAT(refusalOfConfig(config), HasSubstr("this is a Hugging Face model: run `chorus convert` first"));
  }
  EXPECT_THAT(refusalOfConfig("{}"), HasSubstr("'architecture' is missing"));
}

}  // namespace
}  // namespace chorus
