#include "convert/sources/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/testing/error_of.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "convert/convert_model.h"
#include "models/architecture.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kGoldens = test::sourceDir() / "tests/goldens/checkpoint";

std::string describe(const TensorView& tensor) {
  Sha256 hash;
  hash.update(tensor.bytes);
  const std::map<DType, std::string> codes = {
      {DType::kFloat32, "F32"}, {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"}};
  return codes.at(tensor.dtype) + shapeText(tensor.shape) + ":" + hash.hex().substr(0, 16);
}

class HuggingFaceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "convert.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    model_ = dir_ / "model";
    fs::copy(kGoldens / "model", model_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void setConfig(const std::string& key, const Json& value) {
    Json config = readJsonFile(model_ / "config.json");
    config[key] = value;
    writeFileAtomically(model_ / "config.json", config.dump());
  }
  using Tensors = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;
  // Applies a change to all tensors and writes the weights again.
  void rewrite(const std::function<void(Tensors&)>& change, DType dtype = DType::kFloat32) {
    Tensors tensors;
    const Safetensors file = Safetensors::open(model_ / "model.safetensors");
    for (const auto& name : file.names()) {
      const TensorView* view = file.find(name);
      std::vector<float> values(static_cast<size_t>(view->elements()));
      std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
      tensors[name] = {view->shape, values};
    }
    change(tensors);
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const auto& [name, tensor] : tensors) declarations.push_back({name, dtype, tensor.first});
    SafetensorsWriter writer(model_ / "model.safetensors", declarations);
    for (const auto& [name, tensor] : tensors) {
      const std::vector<float>& values = tensor.second;
      std::vector<std::byte> bytes(values.size() * dtypeSize(dtype));
      convertElements(values.data(), DType::kFloat32, bytes.data(), dtype, values.size());
      writer.write(name, 0, bytes);
    }
    writer.finish();
  }
  // The names of a model that was saved without its output head's class, as GPT-2's files have them.
  static void removeOwnName(Tensors& tensors) {
    for (auto it = tensors.begin(); it != tensors.end();) {
      const std::string name = it->first;
      ++it;
      if (!name.starts_with("model.")) continue;
      auto moved = tensors.extract(name);
      moved.key() = name.substr(6);
      tensors.insert(std::move(moved));
    }
  }
  std::string refusal(const ConvertOptions& options = {}) {
    return errorOf([&] { convertModel(model_, dir_ / "out", options); });
  }

  fs::path dir_, model_;
};

TEST_F(HuggingFaceTest, TheModelsOwnNameMayBeMissing) {
  convertModel(model_, dir_ / "with", {});
  rewrite(removeOwnName);
  convertModel(model_, dir_ / "without", {});
  EXPECT_EQ(readFile(dir_ / "without/rank0.safetensors", 1 << 24), readFile(dir_ / "with/rank0.safetensors", 1 << 24));
}

// A model of text and images gives the checkpoint of its text model, whatever the file's names are.
TEST_F(HuggingFaceTest, OtherPartsOfAModelAreLeftOut) {
  const auto rankFile = [&] {
    convertModel(model_, dir_ / "out", {});
    return readFile(dir_ / "out/rank0.safetensors", 1 << 24);
  };
  rewrite([](Tensors& tensors) { std::erase_if(tensors, [](const auto& t) { return t.first.ends_with(".bias"); }); });
  Json text = readJsonFile(model_ / "config.json");
  text.update({{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}, {"sliding_window", nullptr}});
  text.erase("attention_bias");
  text.erase("mlp_bias");
  writeFileAtomically(model_ / "config.json", text.dump());
  const auto expected = rankFile();
  const Json config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                       {"text_config", text},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "float32"}};
  writeFileAtomically(model_ / "config.json", config.dump());
  EXPECT_EQ(rankFile(), expected);
  rewrite([](Tensors& tensors) {
    Tensors renamed;
    for (const auto& [name, tensor] : tensors) renamed["language_model." + name] = tensor;
    renamed["vision_tower.patch_conv.weight"] = {{4, 3}, std::vector<float>(12)};
    renamed["multi_modal_projector.linear_1.bias"] = {{5}, std::vector<float>(5)};
    tensors = renamed;
  });
  EXPECT_EQ(rankFile(), expected);
  const SourceModel model = openSource(model_, {});
  EXPECT_EQ(model.left_out.count, 2);
  EXPECT_EQ(model.left_out.bytes, 4u * (12 + 5));
  rewrite([](Tensors& tensors) { tensors["audio_tower.conv.weight"] = {{4}, std::vector<float>(4)}; });
  EXPECT_THAT(refusal(), HasSubstr("audio_tower.conv.weight"));
  rewrite([](Tensors& tensors) {
    tensors.erase("audio_tower.conv.weight");
    tensors.erase("language_model.model.norm.weight");
  });
  EXPECT_THAT(refusal(), HasSubstr("Required but not provided tensors: language_model.model.norm.weight"));
}

TEST_F(HuggingFaceTest, AnOutputHeadThatDiffersFromTheEmbeddingIsNotTied) {
  setConfig("tie_word_embeddings", true);
  rewrite([](Tensors& tensors) { tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight"); });
  EXPECT_TRUE(openSource(model_, {}).config.tie_word_embeddings);
  rewrite([](Tensors& tensors) { tensors["lm_head.weight"].second.back() += 1; });
  EXPECT_FALSE(openSource(model_, {}).config.tie_word_embeddings) << "as in transformers 5";
}

TEST_F(HuggingFaceTest, RankFilesEqualTheIndependentSplitter) {
  const Json expected = readJsonFile(kGoldens / "expected.json");
  ASSERT_GT(expected.size(), 10u);
  const std::string untied = readFile(model_ / "model.safetensors", size_t{1} << 30);
  for (const Json& golden : expected) {
    const Json& o = golden["options"];
    SCOPED_TRACE(o.dump());
    setConfig("tie_word_embeddings", o["tie_word_embeddings"]);
    writeFileAtomically(model_ / "model.safetensors", untied);
    // A tied model has no output head of its own.
    if (o["tie_word_embeddings"] == true) rewrite([](Tensors& tensors) { tensors.erase("lm_head.weight"); });
    const ConvertOptions options = {.dtype = dtypeFromName(o["dtype"].get<std::string>()),
                                    .tp_size = o["tp_size"],
                                    .pp_size = o["pp_size"],
                                    .use_parallel_embedding = o["use_parallel_embedding"],
                                    .embedding_sharding_dim = o["embedding_sharding_dim"],
                                    .workers = 2};
    convertModel(model_, dir_ / "out", options);
    for (size_t rank = 0; rank < golden["ranks"].size(); ++rank) {
      const Safetensors file = Safetensors::open(dir_ / "out" / rankFileName(static_cast<int32_t>(rank)));
      const Json& tensors = golden["ranks"][rank];
      EXPECT_EQ(file.names().size(), tensors.size()) << "rank " << rank;
      for (const auto& [name, text] : tensors.items()) {
        ASSERT_NE(file.find(name), nullptr) << name;
        EXPECT_EQ(describe(*file.find(name)), text.get<std::string>()) << "rank " << rank << " " << name;
      }
    }
    const CheckpointReader reader = CheckpointReader::open(dir_ / "out");
    const WeightTable table = findArchitecture(reader.config().architecture).weightTable(reader.config());
    for (int32_t rank = 0; rank < reader.config().mapping.worldSize(); ++rank) {
      EXPECT_EQ(reader.rank(rank, table).tensors().size(), golden["ranks"][static_cast<size_t>(rank)].size());
    }
  }
}

TEST_F(HuggingFaceTest, DTypeComesFromTheConfigThenFromTheTensors) {
  setConfig("torch_dtype", "bfloat16");
  EXPECT_EQ(openSource(model_, {}).config.dtype, DType::kBFloat16);
  setConfig("torch_dtype", nullptr);
  EXPECT_EQ(openSource(model_, {}).config.dtype, DType::kFloat32);
  rewrite(removeOwnName, DType::kBFloat16);
  EXPECT_EQ(openSource(model_, {}).config.dtype, DType::kBFloat16);
  setConfig("dtype", "float8_e4m3");
  EXPECT_THAT(refusal(), HasSubstr("--dtype"));
}

TEST_F(HuggingFaceTest, NamesTensorsThatAreMissingUnexpectedOrOfAnotherShape) {
  rewrite([](auto& tensors) { tensors["model.layers.1.self_attn.rotary_emb.inv_freq"] = {{2}, {1, 2}}; });
  EXPECT_EQ(refusal(), "");
  rewrite([](auto& tensors) { tensors["model.layers.1.self_attn.q_norm.weight"] = {{2}, {1, 2}}; });
  EXPECT_THAT(refusal(), HasSubstr("model.layers.1.self_attn.q_norm.weight"));
  rewrite([](auto& tensors) {
    tensors.erase("model.layers.1.self_attn.q_norm.weight");
    tensors.erase("model.layers.2.mlp.up_proj.weight");
  });
  EXPECT_THAT(refusal(), HasSubstr("Required but not provided tensors: model.layers.2.mlp.up_proj.weight"));
  rewrite([](auto& tensors) { tensors["model.layers.2.mlp.up_proj.weight"] = {{20, 28}, std::vector<float>(560)}; });
  EXPECT_THAT(refusal(), HasSubstr("has shape [20, 28], config.json asks for [28, 20]"));
}

TEST_F(HuggingFaceTest, Float16OverflowNamesTheTensorAndLeavesTheOldCheckpoint) {
  convertModel(model_, dir_ / "out", {.dtype = DType::kFloat16});
  rewrite([](auto& tensors) { tensors["model.norm.weight"].second[3] = 70000.0f; });
  EXPECT_THAT(refusal({.dtype = DType::kFloat16}), HasSubstr("'model.norm.weight' holds values beyond float16"));
  EXPECT_EQ(CheckpointReader::open(dir_ / "out").config().dtype, DType::kFloat16);
  EXPECT_EQ(refusal({.dtype = DType::kBFloat16}), "");
  rewrite([](auto& tensors) { tensors["model.norm.weight"].second[3] = std::numeric_limits<float>::infinity(); });
  EXPECT_EQ(refusal({.dtype = DType::kFloat16}), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2) << "no temporary stays";
}

TEST_F(HuggingFaceTest, ReplacesOnlyCheckpoints) {
  fs::create_directory(dir_ / "out");
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(refusal({.tp_size = 2}), "");
  EXPECT_TRUE(fs::exists(dir_ / "out" / "rank1.safetensors"));
  EXPECT_EQ(refusal(), "");
  EXPECT_FALSE(fs::exists(dir_ / "out" / "rank1.safetensors"));
  writeFileAtomically(dir_ / "out" / "notes.txt", "mine");
  EXPECT_THAT(refusal(), HasSubstr("do not belong to a checkpoint"));
  EXPECT_EQ(readFile(dir_ / "out" / "notes.txt", 10), "mine");
  EXPECT_THAT(errorOf([&] { convertModel(model_, model_, {}); }), HasSubstr("is the model itself"));
}

TEST_F(HuggingFaceTest, RefusesWhatItDoesNotKnow) {
  setConfig("architectures", {"ZebraForCausalLM"});
  EXPECT_THAT(refusal(), HasSubstr("'ZebraForCausalLM' is not supported"));
  setConfig("architectures", {"LlamaForCausalLM"});
  EXPECT_THAT(refusal({.tp_size = 3}), HasSubstr("tp_size 3"));
  EXPECT_THAT(refusal({.pp_size = 4}), HasSubstr("pp_size"));
  setConfig("quantization_config", {{"bits", 4}});
  EXPECT_THAT(refusal(), HasSubstr("quantization_config"));
}

}  // namespace
}  // namespace chorus
