// Adapters of experts: PEFT's separate modules and stacked parameters, and the rows of the tensor form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lora/adapter_builder.h"
#include "lora/peft_reader.h"
#include "lora/shard.h"
#include "lora/tensor_adapter.h"
#include "lora/testing/peft_directory.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kExperts = TestModel::kExperts, kHidden = 4, kSize = TestModel::kExpertSize;

std::vector<float> floats(const std::byte* data, DType dtype, int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(loadAsFloat(data, dtype, static_cast<size_t>(i)));
  return out;
}
std::vector<float> aOf(const AdapterModule& m) { return floats(m.a, m.dtype, m.rank * m.in); }
std::vector<float> bOf(const AdapterModule& m) { return floats(m.b, m.dtype, m.out * m.rank); }

class ExpertAdaptersTest : public PeftDirectoryTest {
 protected:
  ExpertAdaptersTest() {
    model_ = TestModel().withExperts();
    config_ = Json::parse(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "use_dora": false,
      "target_modules": ["down_proj"], "task_type": "CAUSAL_LM"})");
  }
  const AdapterModule& moduleOf(const Adapter& adapter, int32_t id, int64_t expert) {
    for (const AdapterModule& module : adapter.modules) {
      if (module.module_id == id && module.expert == expert) return module;
    }
    ADD_FAILURE() << "no module " << id << " of expert " << expert;
    return adapter.modules.at(0);
  }
};

const std::string kLayer = "base_model.model.model.layers.1.mlp.experts.";

TEST_F(ExpertAdaptersTest, SeparateModulesNameTheirExpert) {
  put(kLayer + "1.down_proj.lora_A.weight", {2, kSize}, 10);
  put(kLayer + "1.down_proj.lora_B.weight", {kHidden, 2}, 20);
  const Adapter adapter = read();
  ASSERT_EQ(adapter.modules.size(), 1u);
  EXPECT_EQ(adapter.modules[0].module_id, kMoe4HToH);
  EXPECT_EQ(adapter.modules[0].expert, 1);
  EXPECT_THAT(aOf(adapter.modules[0]), ElementsAre(10, 11, 12, 13, 14, 15));

  put(kLayer + "2.down_proj.lora_A.weight", {2, kSize}, 10);
  EXPECT_THAT(refusal(), HasSubstr("experts.2.down_proj.lora_A.weight' adapts no module of LlamaForCausalLM"));
}

TEST_F(ExpertAdaptersTest, AnIdIsWrittenWithoutZerosAndSigns) {
  for (const char* id : {"01", "-0", "+1", ""}) {
    tensors_.clear();
    put(kLayer + id + ".down_proj.lora_A.weight", {2, kSize}, 10);
    put(kLayer + id + ".down_proj.lora_B.weight", {kHidden, 2}, 20);
    EXPECT_THAT(refusal(), HasSubstr("adapts no module")) << id;
  }
}

TEST_F(ExpertAdaptersTest, ALayerThatTheModelDoesNotHaveIsNamed) {
  put("base_model.model.model.layers.7.mlp.experts.0.down_proj.lora_A.weight", {2, kSize}, 10);
  EXPECT_THAT(refusal(), HasSubstr("belongs to layer 7"));
}

TEST_F(ExpertAdaptersTest, WeightsOfExpertsCannotBeReplaced) {
  config_["target_modules"] = Json::array();
  config_["target_parameters"] = {"experts.down_proj"};
  put(kLayer + "lora_A.weight", {4, kSize}, 10);
  put(kLayer + "lora_B.weight", {kHidden, 4}, 20);
  ASSERT_EQ(refusal(), "");
  config_["modules_to_save"] = {"experts"};
  EXPECT_THAT(refusal(), HasSubstr("modules_to_save lists 'model.layers.1.mlp.experts', but adapters cannot replace"));
}

TEST_F(ExpertAdaptersTest, ADenseLayerHasNoExpertsAndAnExpertLayerNoMlp) {
  put("base_model.model.model.layers.0.mlp.experts.0.down_proj.lora_A.weight", {2, kSize}, 10);
  EXPECT_THAT(refusal(), HasSubstr("adapts no module"));
  tensors_.clear();
  put("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", {2, 6}, 10);
  EXPECT_THAT(refusal(), HasSubstr("adapts no module"));
}

// Row e * rank + r of A and column r * experts + e of B belong to rank r of expert e.
TEST_F(ExpertAdaptersTest, StackedParametersAreTakenApart) {
  config_["target_modules"] = Json::array();
  config_["target_parameters"] = {"experts.down_proj", "mlp.experts.gate_up_proj"};
  put(kLayer + "base_layer.lora_A.weight", {4, kHidden}, 0);
  put(kLayer + "base_layer.lora_B.weight", {2 * kSize, 4}, 100);
  put(kLayer + "lora_A.weight", {4, kSize}, 0);
  put(kLayer + "lora_B.weight", {kHidden, 4}, 200);
  const Adapter adapter = read();
  EXPECT_TRUE(adapter.adapts_parameters);
  EXPECT_EQ(adapter.modules.size(), 6u);
  const AdapterModule& gate = moduleOf(adapter, kMoeHTo4H, 1);
  EXPECT_THAT(aOf(gate), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(bOf(gate), ElementsAre(101, 103, 105, 107, 109, 111)) << "the first half of gate_up_proj";
  EXPECT_THAT(bOf(moduleOf(adapter, kMoeGate, 0)), ElementsAre(112, 114, 116, 118, 120, 122));
  EXPECT_THAT(aOf(moduleOf(adapter, kMoe4HToH, 0)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(bOf(moduleOf(adapter, kMoe4HToH, 0)), ElementsAre(200, 202, 204, 206, 208, 210, 212, 214));
  EXPECT_EQ(gate.scale, 3.0f);

  config_["target_parameters"] = {"experts.down_proj"};
  EXPECT_THAT(refusal(), HasSubstr("base_layer.lora_A.weight' is not of the parameters that"));
  config_["target_parameters"] = {"experts.gate_up_proj"};
  tensors_.clear();
  put(kLayer + "lora_A.weight", {4, kHidden}, 0);
  put(kLayer + "lora_B.weight", {2 * kSize, 4}, 100);
  EXPECT_THAT(bOf(moduleOf(read(), kMoeHTo4H, 1)), ElementsAre(101, 103, 105, 107, 109, 111)) << "a single parameter";
  put(kLayer + "lora_B.weight", {2 * kSize, 6}, 100);
  EXPECT_THAT(refusal(), HasSubstr("has shape [6, 6], expected [6, 4]"));
}

TEST_F(ExpertAdaptersTest, StacksInTheOrderOfOldPeftAreNamed) {
  config_["target_modules"] = Json::array();
  config_["target_parameters"] = {"experts.down_proj"};
  put(kLayer + "lora_A.weight", {4, kHidden});
  put(kLayer + "lora_B.weight", {kSize, 4});
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("lora_A.weight' has shape [4, 4], expected [4, 3]"), HasSubstr("PEFT before 0.18")));
  put(kLayer + "lora_B.weight", {kSize, 6});
  EXPECT_THAT(refusal(), HasSubstr("the adapter is of another model or rank"));
}

// An adapter of experts is read with the same values from PEFT's names, Mixtral's names and mlx-lm's stacks.
TEST_F(ExpertAdaptersTest, SpellingsAndStacksOfExpertsAreEqual) {
  const std::string linears[][3] = {
      {"gate_proj", "w1", "gate_proj"}, {"up_proj", "w3", "up_proj"}, {"down_proj", "w2", "down_proj"}};
  config_["target_modules"] = {"gate_proj", "up_proj", "down_proj"};
  const auto sizes = [](const std::string& linear) {
    return linear == "down_proj" ? std::pair(kSize, kHidden) : std::pair(kHidden, kSize);
  };
  float first = 0;
  for (int expert = 0; expert < kExperts; ++expert) {
    for (const auto& names : linears) {
      const auto [in, out] = sizes(names[0]);
      const std::string module = fmt::format("{}{}.{}", kLayer, expert, names[0]);
      put(module + ".lora_A.weight", {2, in}, first += 100);
      put(module + ".lora_B.weight", {out, 2}, first += 100);
    }
  }
  const auto separate = tensors_;
  const Adapter expected = read();
  ASSERT_EQ(expected.modules.size(), 6u);
  const auto expectEqual = [&](const std::string& what) {
    SCOPED_TRACE(what);
    const Adapter adapter = read();
    ASSERT_EQ(adapter.modules.size(), 6u);
    for (const AdapterModule& module : expected.modules) {
      const AdapterModule& other = moduleOf(adapter, module.module_id, module.expert);
      EXPECT_EQ(aOf(module), aOf(other));
      EXPECT_EQ(bOf(module), bOf(other));
      EXPECT_EQ(module.scale, other.scale);
    }
  };
  for (const char* block : {"mlp", "block_sparse_moe"}) {
    tensors_.clear();
    for (const auto& names : linears) {
      for (int expert = 0; expert < kExperts; ++expert) {
        for (const char* part : {".lora_A.weight", ".lora_B.weight"}) {
          tensors_[fmt::format("model.layers.1.{}.experts.{}.{}{}", block, expert, names[1], part)] =
              separate.at(fmt::format("{}{}.{}{}", kLayer, expert, names[0], part));
        }
      }
    }
    config_["target_modules"] = {"w1", "w2", "w3"};
    expectEqual(block);
  }
  tensors_.insert(separate.begin(), separate.end());
  config_["target_modules"] = nullptr;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("the same weights as"), HasSubstr("experts.0.")));

  config_ = {{"lora_parameters", {{"rank", 2}, {"scale", 3}}}};
  for (const bool is_flat : {false, true}) {
    tensors_.clear();
    for (const auto& names : linears) {
      const auto [in, out] = sizes(names[0]);
      const std::string module = "model.layers.1.block_sparse_moe.switch_mlp." + names[2];
      for (const bool is_a : {true, false}) {
        auto& [shape, values] = tensors_[module + (is_a ? ".lora_a" : ".lora_b")];
        shape = is_a ? std::vector<int64_t>{kExperts, 2, in} : std::vector<int64_t>{kExperts, out, 2};
        if (is_a && is_flat) shape = {kExperts * 2, in};
        for (int expert = 0; expert < kExperts; ++expert) {
          const auto& own =
              separate.at(fmt::format("{}{}.{}.lora_{}.weight", kLayer, expert, names[0], is_a ? 'A' : 'B'));
          values.insert(values.end(), own.second.begin(), own.second.end());
        }
      }
    }
    expectEqual(is_flat ? "a flat stack" : "a stack");
  }
  put("model.layers.1.mlp.switch_mlp.down_proj.lora_a", {kExperts, 2, kSize});
  EXPECT_THAT(refusal(), HasSubstr("is for the same weights as"));
  tensors_.clear();
  put("model.layers.1.mlp.switch_mlp.down_proj.lora_a", {kExperts, 2, kSize});
  put("model.layers.1.mlp.switch_mlp.down_proj.lora_b", {kExperts, 2, kHidden});
  EXPECT_THAT(refusal(), HasSubstr("has shape [2, 2, 4], expected [2, 4, 2]"));
  put("model.layers.0.mlp.switch_mlp.down_proj.lora_a", {kExperts, 2, kSize});
  EXPECT_THAT(refusal(), HasSubstr("layers.0.mlp.switch_mlp.down_proj.lora_a' adapts no module"));
}

TEST_F(ExpertAdaptersTest, RanksHaveTheirShareOfEveryExpert) {
  put(kLayer + "0.down_proj.lora_A.weight", {2, kSize}, 10);
  put(kLayer + "0.down_proj.lora_B.weight", {kHidden, 2}, 20);
  for (const LinearId id : {LinearId::kExpertsFc, LinearId::kExpertsProj}) {
    for (WeightRow& row : model_.table) {
      if (row.slot == slotOf(id))
        row.shape = id == LinearId::kExpertsFc ? std::vector<int64_t>{4, 4} : std::vector<int64_t>{4, 2};
    }
  }
  tensors_.clear();
  put(kLayer + "0.down_proj.lora_A.weight", {2, 2}, 10);
  put(kLayer + "0.down_proj.lora_B.weight", {kHidden, 2}, 20);
  const Adapter whole = read();
  model_.config.mapping.tp_size = 2;
  const Adapter part = shardAdapter(whole, model_.config, model_.table, 1);
  ASSERT_EQ(part.modules.size(), 1u);
  EXPECT_EQ(part.modules[0].expert, 0);
  EXPECT_EQ(part.modules[0].in, 1);
  EXPECT_THAT(aOf(part.modules[0]), ElementsAre(11, 13));
}

TEST_F(ExpertAdaptersTest, ARowOfTensorsHoldsAllExperts) {
  std::vector<float> values(static_cast<size_t>(kExperts * (kSize + kHidden)));
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<int32_t> config = {kMoe4HToH, 1, 1, 0};
  const auto readTensors = [&] {
    return readTensorAdapter({DType::kFloat32, {1, 1, std::ssize(values)}, std::as_bytes(std::span(values))},
                             {DType::kInt32, {1, 1, 4}, std::as_bytes(std::span(config))}, nullptr, "t",
                             {model_.config, model_.table, 0});
  };
  const Adapter adapter = readTensors();
  ASSERT_EQ(adapter.modules.size(), 2u);
  EXPECT_THAT(aOf(moduleOf(adapter, kMoe4HToH, 1)), ElementsAre(3, 4, 5));
  EXPECT_THAT(bOf(moduleOf(adapter, kMoe4HToH, 0)), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(bOf(moduleOf(adapter, kMoe4HToH, 1)), ElementsAre(10, 11, 12, 13));
  config[3] = 1;
  EXPECT_EQ(errorOf(readTensors), "lora module moe_4h_to_h has experts, whose DoRA is not supported");
  config = {kMoe4HToH, 1, 2, 0};
  EXPECT_EQ(errorOf(readTensors), "lora_weights has to few values for moe_4h_to_h");
  config = {kMoe4HToH, 0, 1, 0};
  EXPECT_EQ(errorOf(readTensors), "lora module moe_4h_to_h not enabled for this model");
}

}  // namespace
}  // namespace chorus
