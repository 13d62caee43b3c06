#include "convert/lora_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/testing/error_of.h"
#include "convert/lora_places.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "lora/module_ids.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kGoldens = test::sourceDir() / "tests/goldens";

class LoraConvertTest : public testing::Test {
 protected:
  LoraConvertTest() {
    std::string name = testing::TempDir() + "lora_convert.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    dir_ = name;
    fs::create_directory(dir_ / "adapter");
    setConfig({});
    // q and v of two layers, rank 2, hidden 3.
    for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}) {
      const std::string key = std::string("base_model.model.") + module;
      tensors_[key + ".lora_A.weight"] = {{2, 3}, {1, 2, 3, 4, 5, 6}};
      tensors_[key + ".lora_B.weight"] = {{3, 2}, {-1, 2, -3, 4, -5, 6}};
    }
  }
  ~LoraConvertTest() override { fs::remove_all(dir_); }

  using Tensors = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;

  void setConfig(const Json& changes) {
    Json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}};
    config.update(changes.is_null() ? Json::object() : changes);
    writeFileAtomically(dir_ / "adapter/adapter_config.json", config.dump());
  }
  void writeTensors() {
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const auto& [name, tensor] : tensors_) declarations.push_back({name, DType::kFloat32, tensor.first});
    SafetensorsWriter writer(dir_ / "adapter/adapter_model.safetensors", declarations);
    for (const auto& [name, tensor] : tensors_) writer.write(name, 0, std::as_bytes(std::span(tensor.second)));
    writer.finish();
  }
  LoraConversion convert(DType storage = DType::kFloat32) {
    writeTensors();
    return convertLora(dir_ / "adapter", dir_ / "out", storage);
  }
  // Returns the error message, and checks that a failed conversion leaves no files behind.
  std::string refusal(DType storage = DType::kFloat32) {
    const std::string line = errorOf([&] { convert(storage); });
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1) << "only the adapter";
    return line;
  }
  template <typename T>
  std::vector<T> read(const char* file) {
    bytes_ = readFile(dir_ / "out" / file, 1 << 20);
    const NpyArray array = parseNpy(std::as_bytes(std::span(bytes_)), file);
    std::vector<T> values(array.data.size() / sizeof(T));
    std::memcpy(values.data(), array.data.data(), array.data.size());
    shape_ = array.shape;
    return values;
  }

  fs::path dir_;
  Tensors tensors_;
  std::string bytes_;
  std::vector<int64_t> shape_;
  const std::string q_ = "base_model.model.model.layers.0.self_attn.q_proj.";
};

std::string digest(const fs::path& file) {
  Sha256 hash;
  hash.update(readFile(file, 1 << 24));
  return hash.hex().substr(0, 16);
}

TEST_F(LoraConvertTest, EveryGoldenIsWhatTorchAndNumpyMakeOfIt) {
  const Json manifest = readJsonFile(kGoldens / "lora_tensors/manifest.json");
  for (const auto& [name, expected] : manifest.items()) {
    for (const char* storage : {"float32", "float16", "bfloat16"}) {
      const LoraConversion done = convertLora(kGoldens / name, dir_ / "out", *dtypeFromName(storage));
      EXPECT_EQ(done.rows, expected.at("rows").get<int64_t>()) << name;
      EXPECT_EQ(done.longest, expected.at("longest").get<int64_t>()) << name;
      EXPECT_EQ(digest(dir_ / "out" / kLoraConfigFile), expected.at("config").get<std::string>()) << name;
      EXPECT_EQ(digest(dir_ / "out" / kLoraWeightsFile), expected.at(storage).get<std::string>())
          << name << " " << storage;
    }
  }
  EXPECT_GE(manifest.size(), 40u);
}

TEST_F(LoraConvertTest, RowsHoldAThenBTimesItsScaleThenZeros) {
  tensors_[q_ + "lora_B.weight"] = {{1, 2}, {-1, 2}};
  EXPECT_FALSE(convert().lacks_norms);
  EXPECT_THAT(read<int32_t>(kLoraConfigFile), ElementsAre(kAttnQ, 0, 2, 0, kAttnV, 1, 2, 0));
  EXPECT_THAT(shape_, ElementsAre(1, 2, 4));
  EXPECT_THAT(read<float>(kLoraWeightsFile), ElementsAre(1, 2, 3, 4, 5, 6, -2, 4, 0, 0, 0, 0,  //
                                                         1, 2, 3, 4, 5, 6, -2, 4, -6, 8, -10, 12));
  EXPECT_THAT(shape_, ElementsAre(1, 2, 12));
}

TEST_F(LoraConvertTest, AnEarlierResultIsReplacedAndNothingElse) {
  convert();
  convert(DType::kBFloat16);
  EXPECT_EQ(read<uint16_t>(kLoraWeightsFile).size(), 24u);
  writeFileAtomically(dir_ / "out/notes.txt", "mine");
  EXPECT_THAT(errorOf([&] { convert(); }), HasSubstr("choose another output directory"));
  EXPECT_TRUE(fs::exists(dir_ / "out/notes.txt"));
}

TEST_F(LoraConvertTest, RefusesByNameWhatTheFormCannotHold) {
  setConfig({{"bias", "lora_only"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("adapter_config.json"), HasSubstr("'bias' is \"lora_only\"")));
  setConfig({{"lora_bias", true}});
  EXPECT_THAT(refusal(), HasSubstr("'lora_bias'"));
  setConfig({{"modules_to_save", {"lm_head"}}});
  EXPECT_THAT(refusal(), HasSubstr("'modules_to_save'"));
  setConfig({{"trainable_token_indices", {3}}});
  EXPECT_THAT(refusal(), HasSubstr("'trainable_token_indices'"));
  setConfig({{"target_parameters", {"experts.w"}}});
  EXPECT_THAT(refusal(), HasSubstr("'target_parameters'"));
  setConfig({{"bias", "none"}, {"modules_to_save", nullptr}, {"lora_bias", false}});
  EXPECT_EQ(errorOf([&] { convert(); }), "");
  fs::remove_all(dir_ / "out");

  const Tensors plain = tensors_;
  for (const char* name : {"base_model.model.model.embed_tokens.lora_embedding_A", "base_model.model.lm_head.weight",
                           "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias",
                           "base_model.model.model.layers.0.self_attn.q_proj.bias",
                           "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"}) {
    tensors_ = plain;
    tensors_[name] = {{2}, {1, 2}};
    EXPECT_THAT(refusal(), AllOf(HasSubstr(name), HasSubstr("nothing else can be converted")));
  }
  for (const std::string name :
       {"lm_head", "model.layers.0.self_attn.rotary", "model.layers.0.mlp.shared_experts.gate_proj", "q_proj"}) {
    tensors_ = plain;
    tensors_["base_model.model." + name + ".lora_A.weight"] = {{2, 1}, {1, 2}};
    tensors_["base_model.model." + name + ".lora_B.weight"] = {{1, 2}, {1, 2}};
    EXPECT_THAT(refusal(), AllOf(HasSubstr(name), HasSubstr("no LoRA module id"))) << name;
  }
}

TEST_F(LoraConvertTest, FusedAttentionWhoseOrderDependsOnTheModelIsRefused) {
  const auto fused = [&](const std::string& module, int64_t out) {
    tensors_.clear();
    const std::string key = "base_model.model.transformer.h.0." + module;
    tensors_[key + ".lora_A.weight"] = {{2, 3}, std::vector<float>(6, 1)};
    tensors_[key + ".lora_B.weight"] = {{out, 2}, std::vector<float>(static_cast<size_t>(2 * out), 1)};
  };
  fused("self_attention.query_key_value", 9);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("query_key_value.lora_B.weight' has rows"), HasSubstr("group by head")));
  fused("attn.c_attn", 9);
  EXPECT_THAT(refusal(), HasSubstr("group by head")) << "GPT-BigCode with a key of its own for each head";
  fused("attn.c_attn", 5);
  EXPECT_EQ(convert().rows, 1) << "GPT-BigCode";
  fused("attn.c_attn", 9);
  setConfig({{"fan_in_fan_out", true}});
  EXPECT_EQ(convert().rows, 1) << "GPT-2";
}

TEST_F(LoraConvertTest, RefusesWhatContradictsItself) {
  const Tensors plain = tensors_;
  const auto refusalWith = [&](const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    tensors_ = plain;
    tensors_[q_ + name] = {std::move(shape), std::move(values)};
    return refusal();
  };
  EXPECT_THAT(refusalWith("lora_A.weight", {1, 3}, {1, 2, 3}), HasSubstr("has shape [1, 3], expected [2, inputs]"));
  EXPECT_THAT(refusalWith("lora_A.weight", {6}, {1, 2, 3, 4, 5, 6}), HasSubstr("has shape [6]"));
  EXPECT_THAT(refusalWith("lora_B.weight", {2, 3}, {1, 2, 3, 4, 5, 6}), HasSubstr("expected [outputs, 2]"));
  EXPECT_THAT(refusalWith("lora_A.weight", {2, 0}, {}), HasSubstr("holds no values"));
  EXPECT_THAT(refusalWith("lora_A.weight", {2, 1}, {1, NAN}), HasSubstr("not finite"));
  EXPECT_THAT(refusalWith("lora_magnitude_vector", {3}, {1, 2, 3}), HasSubstr("does not set use_dora"));
  EXPECT_THAT(refusalWith("lora_A.default.weight", {2, 1}, {1, 2}), HasSubstr("is for the same weights as"));
  tensors_ = plain;
  tensors_.erase(q_ + "lora_B.weight");
  EXPECT_THAT(refusal(), HasSubstr("lora_B is missing"));
  tensors_ = plain;
  tensors_["base_model.model.encoder.layers.0.self_attn.q_proj.lora_A.weight"] = {{2, 1}, {1, 2}};
  tensors_["base_model.model.encoder.layers.0.self_attn.q_proj.lora_B.weight"] = {{1, 2}, {1, 2}};
  EXPECT_THAT(refusal(), HasSubstr("is attn_q of layer 0, and so is"));
  tensors_ = plain;
  setConfig({{"target_modules", {"k_proj"}}});
  EXPECT_THAT(refusal(), HasSubstr("targets"));
  tensors_["base_model.model.lm_head.lora_A.weight"] = {{2, 1}, {1, 2}};
  tensors_["base_model.model.lm_head.lora_B.weight"] = {{1, 2}, {1, 2}};
  setConfig({{"target_modules", "all-linear"}});
  EXPECT_THAT(refusal(), HasSubstr("which all-linear, the target_modules of"));
  tensors_ = plain;
  setConfig({{"use_dora", true}});
  EXPECT_THAT(refusal(), HasSubstr("no lora_magnitude_vector"));
  setConfig({{"r", 3}});
  EXPECT_THAT(refusal(), HasSubstr("expected [3, inputs]"));
  setConfig({{"r", 0}});
  EXPECT_THAT(refusal(), HasSubstr("'r'"));
  setConfig({{"lora_alpha", 1e300}});
  EXPECT_THAT(refusal(), HasSubstr("lora_alpha"));
  tensors_.clear();
  setConfig({});
  EXPECT_THAT(refusal(), HasSubstr("no LoRA tensors"));
}

TEST_F(LoraConvertTest, RefusesValuesBeyondTheStorageTypesRange) {
  tensors_[q_ + "lora_B.weight"].second[0] = 40000;
  EXPECT_THAT(refusal(DType::kFloat16),
              AllOf(HasSubstr("q_proj.lora_B.weight' times its scale of 2"), HasSubstr("float16")));
  EXPECT_EQ(errorOf([&] { convert(DType::kBFloat16); }), "");
  fs::remove_all(dir_ / "out");
  tensors_[q_ + "lora_A.weight"].second[0] = 70000;
  EXPECT_THAT(refusal(DType::kFloat16), HasSubstr("q_proj.lora_A.weight' holds values beyond float16's"));
  tensors_[q_ + "lora_B.weight"].second[0] = 3e38f;
  EXPECT_THAT(refusal(), HasSubstr("beyond float32's"));
}

TEST_F(LoraConvertTest, ExpertsMustBeAllThereAndAlike) {
  tensors_.clear();
  const auto expert = [&](int number, const char* matrix, int64_t out) {
    const std::string key =
        fmt::format("base_model.model.model.layers.3.block_sparse_moe.experts.{}.{}.", number, matrix);
    tensors_[key + "lora_A.weight"] = {{2, 1}, {1, 2}};
    tensors_[key + "lora_B.weight"] = {{out, 2}, std::vector<float>(static_cast<size_t>(out) * 2, 1)};
  };
  expert(0, "w1", 1);
  expert(2, "w1", 1);
  EXPECT_THAT(refusal(), HasSubstr("one expert of several"));
  expert(1, "w1", 2);
  EXPECT_THAT(refusal(), HasSubstr("another shape"));
  expert(1, "w1", 1);
  expert(0, "w3", 1);
  EXPECT_THAT(refusal(), HasSubstr("one expert of several"));
  expert(1, "w3", 1);
  expert(2, "w3", 1);
  EXPECT_EQ(errorOf([&] { convert(); }), "");
  EXPECT_THAT(read<int32_t>(kLoraConfigFile), ElementsAre(13, 3, 2, 0, 15, 3, 2, 0));
  fs::remove_all(dir_ / "out");
  expert(2000000000, "w3", 1);
  EXPECT_THAT(refusal(), HasSubstr("one expert of several"));
}

TEST_F(LoraConvertTest, EachExpertsBHasItsOwnScale) {
  setConfig({{"alpha_pattern", {{"experts.1.w1", 10}}}});
  tensors_.clear();
  for (const int number : {0, 1}) {
    const std::string key = fmt::format("base_model.model.model.layers.3.block_sparse_moe.experts.{}.w1.", number);
    tensors_[key + "lora_A.weight"] = {{2, 1}, {1, 2}};
    tensors_[key + "lora_B.weight"] = {{1, 2}, {3, 4}};
  }
  convert();
  EXPECT_THAT(read<float>(kLoraWeightsFile), ElementsAre(1, 2, 1, 2, 6, 8, 15, 20));
}

TEST(LoraPlacesTest, NamesOfTheFamilies) {
  const std::pair<const char*, std::pair<int, int>> expected[] = {
      {"model.layers.0.mlp.gate_proj", {5, 0}},
      {"model.layers.0.mlp.up_proj", {7, 0}},
      {"model.layers.31.mlp.gate_up_proj", {18, 31}},
      {"transformer.h.4.attn.c_attn", {0, 4}},
      {"transformer.h.4.attn.c_proj", {4, 4}},
      {"transformer.h.4.mlp.c_proj", {6, 4}},
      {"transformer.h.4.self_attention.query_key_value", {0, 4}},
      {"transformer.h.4.self_attention.dense", {4, 4}},
      {"model.decoder.layers.2.encoder_attn.out_proj", {12, 2}},
      {"decoder.block.5.layer.1.EncDecAttention.v", {11, 5}},
      {"decoder.block.5.layer.0.SelfAttention.v", {3, 5}},
      {"decoder.block.5.layer.2.DenseReluDense.wo", {6, 5}},
      {"model.layers.7.mlp.gate", {16, 7}},
      {"model.layers.7.mlp.shared_expert_gate", {17, 7}},
      {"model.layers.7.mlp.shared_expert.gate_proj", {19, 7}},
      {"model.layers.7.mlp.shared_expert.up_proj", {21, 7}}};
  for (const auto& [name, place] : expected) {
    const auto found = loraPlaceOf(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(std::pair(found->module_id, found->layer), place) << name;
    EXPECT_EQ(found->expert, -1) << name;
  }
  EXPECT_EQ(loraPlaceOf("model.layers.7.mlp.experts.11.down_proj")->expert, 11);
  for (const char* name : {"", "lm_head", "model.layers.x.mlp.up_proj", "model.layers.-1.mlp.up_proj",
                           "model.layers.99999999999.mlp.up_proj", "model.layers.1", "model.layers.1.mlp",
                           "model.layers.1.mlp.up_proj.more", "model.layers.1.mlp.experts.x.up_proj"}) {
    EXPECT_FALSE(loraPlaceOf(name)) << name;
  }
}

}  // namespace
}  // namespace chorus
