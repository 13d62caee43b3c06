// Contents of PEFT adapters other than low-rank matrices of linear layers are read, or refused in one line.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "lora/shard.h"
#include "lora/testing/peft_family.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(PeftFamilyTest, EmbeddingAndOutputHeadAreModulesOfTheirOwn) {
  config_["target_modules"] = {"q_proj", "embed_tokens", "lm_head"};
  config_["use_dora"] = true;
  put(kQ + "lora_magnitude_vector", {4});
  put(kEmbedding + "lora_embedding_A", {2, 8});
  put(kEmbedding + "lora_embedding_B", {4, 2});
  put(kEmbedding + "lora_magnitude_vector", {4});
  put(kEmbedding + "base_layer.weight", {8, 4}, 20);
  put(kHead + "lora_A.weight", {2, 4});
  put(kHead + "lora_B.weight", {8, 2});
  put(kHead + "lora_magnitude_vector", {8});
  const Adapter adapter = read();
  const AdapterModule& embedding = moduleOf(adapter, kTokenEmbedding);
  EXPECT_EQ(embedding.layer, -1);
  EXPECT_EQ(embedding.in, 8);
  EXPECT_EQ(embedding.out, 4);
  const AdapterModule& head = moduleOf(adapter, kOutputHead);
  EXPECT_EQ(head.in, 4);
  EXPECT_EQ(head.out, 8);
  EXPECT_EQ(head.magnitude.size(), 8u);
  EXPECT_EQ(weightsOf(adapter, slotOf(TableId::kTokens)).front(), 20);
  EXPECT_EQ(adapter.weights.size(), 1u);

  auto whole = tensors_;
  tensors_.erase(kEmbedding + "lora_embedding_A");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("lora_embedding_B"), HasSubstr("belongs to a module whose")));
  tensors_ = whole;
  put(kHead + "lora_B.weight", {7, 2});
  EXPECT_THAT(refusal(), HasSubstr("has shape [7, 2], expected [8, 2]"));
  tensors_ = whole;
  put(kEmbedding + "lora_A.weight", {2, 4});
  EXPECT_THAT(refusal(),
              HasSubstr("has the name of a linear layer's tensor, but its module is adapted as an embedding"));
}

// A file may have so many tensors that a copy of the reason for each would fill the memory.
TEST_F(PeftFamilyTest, AReasonThatNamesNoTensorIsKeptOnce) {
  config_["modules_to_save"] = {"norm"};
  config_["trainable_token_indices"] = {{"no_such_module", {0}}};
  put(kBase + "model.layers.0.input_layernorm.weight", {4});
  put(kBase + "model.layers.1.input_layernorm.weight", {4});
  put(kBase + "model.norm.weight", {4}, 90);
  save();
  FileReader reader(Directory::open(dir_, Links::kFollow));
  const PeftFiles files = readPeftFiles(reader, size_t{1} << 20);
  const PeftInspection inspection = inspectPeftAdapter(files, {model_.config, model_.table, 0});
  EXPECT_THAT(inspection.error, HasSubstr("no_such_module"));
  int refused = 0, with_reason = 0;
  for (const PeftInspection::Tensor& tensor : inspection.tensors) {
    refused += tensor.verdict == PeftInspection::Tensor::Verdict::kRefused ? 1 : 0;
    with_reason += tensor.reason.find("no_such_module") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(with_reason, 1);
}

TEST_F(PeftFamilyTest, WholeModulesAreKeptByRow) {
  config_["modules_to_save"] = {"k_proj", "norm"};
  put(kBase + "model.layers.0.self_attn.k_proj.weight", {2, 4}, 10);
  put(kBase + "model.layers.0.self_attn.k_proj.bias", {2}, 30);
  put(kBase + "model.layers.1.self_attn.k_proj.weight", {2, 4}, 50);
  put(kBase + "model.layers.1.self_attn.k_proj.bias", {2}, 70);
  put(kBase + "model.layers.0.input_layernorm.weight", {4});
  put(kBase + "model.layers.1.input_layernorm.weight", {4});
  put(kBase + "model.norm.weight", {4}, 90);
  const Adapter adapter = read();
  ASSERT_EQ(adapter.weights.size(), 7u);
  EXPECT_THAT(weightsOf(adapter, kQkvBias), ElementsAre(30, 31, 70, 71));
  EXPECT_THAT(weightsOf(adapter, slotOf(NormId::kFinal)), ElementsAre(90, 91, 92, 93));
  for (const AdapterWeight& weight : adapter.weights) {
    if (weight.slot == slotOf(LinearId::kQkv)) {
      EXPECT_EQ(weight.row_begin, 4);
    }
  }
  const auto whole = tensors_;
  tensors_.erase(kBase + "model.layers.1.self_attn.k_proj.bias");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("layers.1.self_attn.k_proj.bias"), HasSubstr("modules_to_save")));
  tensors_ = whole;
  tensors_[kBase + "model.norm.weight"].second[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.norm.weight"), HasSubstr("not finite")));
  tensors_ = whole;
  config_["modules_to_save"] = {"k_proj"};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("layernorm.weight"), HasSubstr("does not list in modules_to_save")));
  config_["modules_to_save"] = {"q_proj", "k_proj", "norm"};
  EXPECT_THAT(refusal(), HasSubstr("such a module cannot have LoRA tensors"));
}

// Replacements are transformed in the same way as conversion transforms the base's values.
TEST_F(PeftFamilyTest, ReplacementsAreTransformedAsTheBaseIs) {
  const auto sourceOf = [&](const WeightSlot& slot) -> WeightSource& {
    return std::find_if(model_.table.begin(), model_.table.end(),
                        [&](const WeightRow& row) { return row.slot == slot; })
        ->sources.front();
  };
  sourceOf(slotOf(LinearId::kProj)).transform.transposed = true;
  sourceOf(slotOf(NormId::kFinal)).transform.add = 1;
  sourceOf(slotOf(TableId::kTokens)).transform.scale = 2;
  config_["modules_to_save"] = {"down_proj", "norm", "embed_tokens"};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    put(kBase + layer + "mlp.down_proj.weight", {6, 4});
    put(kBase + layer + "input_layernorm.weight", {4});
  }
  put(kBase + "model.norm.weight", {4}, 90);
  put(kEmbedding + "weight", {8, 4}, 3);
  const Adapter adapter = read();
  const std::vector<float> proj = weightsOf(adapter, slotOf(LinearId::kProj));
  ASSERT_EQ(proj.size(), 48u);
  EXPECT_THAT(std::vector<float>(proj.begin(), proj.begin() + 7), ElementsAre(1, 5, 9, 13, 17, 21, 2));
  EXPECT_THAT(weightsOf(adapter, slotOf(NormId::kFinal)), ElementsAre(91, 92, 93, 94));
  EXPECT_EQ(weightsOf(adapter, slotOf(TableId::kTokens))[1], 8);
  EXPECT_EQ(weightsOf(adapter, slotOf(NormId::kAttentionIn)).front(), 1) << "others stay as they are";

  put(kBase + "model.layers.0.mlp.down_proj.weight", {4, 6});
  EXPECT_THAT(refusal(), HasSubstr("has shape [4, 6], expected [6, 4]"));
}

TEST_F(PeftFamilyTest, AModuleThatHoldsOthersIsSavedWithAllOfThem) {
  const std::string down = kBase + "model.layers.0.mlp.down_proj.";
  tensors_.clear();
  put(down + "lora_A.weight", {2, 6});
  put(down + "lora_B.weight", {4, 2});
  config_["target_modules"] = {"down_proj"};
  config_["modules_to_save"] = {"self_attn"};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const auto& [name, rows] : {std::pair("q_proj.", 4), std::pair("k_proj.", 2), std::pair("v_proj.", 2)}) {
      put(kBase + layer + "self_attn." + name + "weight", {rows, 4});
      put(kBase + layer + "self_attn." + name + "bias", {rows});
    }
  }
  EXPECT_EQ(read().weights.size(), 12u);
  tensors_.erase(kBase + "model.layers.1.self_attn.v_proj.weight");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("layers.1.self_attn.v_proj.weight"), HasSubstr("modules_to_save")));
  // PEFT does not wrap a module that it saves whole.
  put(kBase + "model.layers.1.self_attn.v_proj.base_layer.weight", {2, 4});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("v_proj.base_layer.weight"), HasSubstr("does not list in modules_to_save")));
}

TEST_F(PeftFamilyTest, BiasesAreReadAsTheConfigurationSays) {
  const std::string q = kQ + "base_layer.bias", v = kBase + "model.layers.1.self_attn.v_proj.bias";
  put(q, {4}, 5);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("q_proj.base_layer.bias"), HasSubstr("does not ask for")));
  config_["bias"] = "lora_only";
  EXPECT_THAT(weightsOf(read(), kQkvBias), ElementsAre(5, 6, 7, 8));
  put(v, {2}, 9);
  EXPECT_THAT(refusal(), HasSubstr("v_proj.bias"));
  config_["bias"] = "all";
  EXPECT_THAT(weightsOf(read(), kQkvBias), ElementsAre(5, 6, 7, 8, 9, 10));
  put(kBase + "model.layers.0.mlp.down_proj.bias", {4});
  EXPECT_THAT(refusal(), HasSubstr("down_proj.bias' adapts no module"));
}

TEST_F(PeftFamilyTest, TheBiasOfLoraBIsRead) {
  config_["lora_bias"] = true;
  EXPECT_THAT(refusal(), HasSubstr("has no bias of lora_B, although"));
  put(kQ + "lora_B.bias", {4}, 7);
  EXPECT_THAT(read().modules[0].bias, ElementsAre(7, 8, 9, 10));
  config_["use_dora"] = true;
  EXPECT_THAT(refusal(), HasSubstr("'lora_bias' cannot be combined with 'use_dora'"));
}

TEST_F(PeftFamilyTest, ParametersAreNamedWithTheirWeight) {
  config_["target_modules"] = Json::array();
  EXPECT_THAT(refusal(), HasSubstr("is not among the modules"));
  config_["target_parameters"] = {"self_attn.q_proj.weight", "embed_tokens.weight"};
  config_["rank_pattern"] = {{"q_proj", 7}, {"embed_tokens.weight", 1}};
  put(kEmbedding + "lora_A.weight", {1, 4}, 10);
  put(kEmbedding + "lora_B.weight", {8, 1}, 20);
  const Adapter adapter = read();
  EXPECT_EQ(moduleOf(adapter, kAttnQ).rank, 2);
  const AdapterModule& embedding = moduleOf(adapter, kTokenEmbedding);
  EXPECT_EQ(embedding.in, 8);
  EXPECT_EQ(loadAsFloat(embedding.a, embedding.dtype, 3), 23);
  EXPECT_EQ(loadAsFloat(embedding.b, embedding.dtype, 3), 13);
  for (const char* field : {"use_dora", "lora_bias", "fan_in_fan_out"}) {
    config_[field] = true;
    EXPECT_THAT(refusal(), HasSubstr("'target_parameters' cannot be combined with"));
    config_.erase(field);
  }
}

TEST_F(PeftFamilyTest, OnlyOneRankOfARowParallelLinearHasItsBias) {
  const std::string down = kBase + "model.layers.0.mlp.down_proj.";
  config_["target_modules"] = {"q_proj", "down_proj"};
  config_["lora_bias"] = true;
  put(kQ + "lora_B.bias", {4}, 7);
  put(down + "lora_A.weight", {2, 6});
  put(down + "lora_B.weight", {4, 2});
  put(down + "lora_B.bias", {4}, 20);
  model_.config.mapping.tp_size = 2;
  const Adapter whole = read();
  const Adapter first = shardAdapter(whole, model_.config, model_.table, 0);
  const Adapter second = shardAdapter(whole, model_.config, model_.table, 1);
  EXPECT_THAT(moduleOf(first, kAttnQ).bias, ElementsAre(7, 8));
  EXPECT_THAT(moduleOf(second, kAttnQ).bias, ElementsAre(9, 10));
  EXPECT_THAT(moduleOf(first, kMlp4HToH).bias, ElementsAre(20, 21, 22, 23));
  EXPECT_TRUE(moduleOf(second, kMlp4HToH).bias.empty());
}

TEST_F(PeftFamilyTest, CopiesThatPeftLeavesInTheFileMustBeEqual) {
  config_["modules_to_save"] = {"lm_head"};
  put(kHead + "weight", {8, 4}, 5);
  put(kHead + "modules_to_save.weight", {8, 4}, 5);
  put(kHead + "original_module.weight", {8, 4}, 60);
  const Adapter adapter = read();
  EXPECT_EQ(weightsOf(adapter, slotOf(LinearId::kHead)).front(), 5);
  EXPECT_THAT(adapter.left_out, ElementsAre(kHead + "original_module.weight"));
  put(kHead + "modules_to_save.weight", {8, 4}, 50);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("modules_to_save.weight"), HasSubstr("is for the same weights as")));
  tensors_.erase(kHead + "weight");
  EXPECT_EQ(weightsOf(read(), slotOf(LinearId::kHead)).front(), 50);
  tensors_.erase(kHead + "modules_to_save.weight");
  EXPECT_THAT(refusal(), HasSubstr("no tensor of 'lm_head.weight'"));
}

TEST_F(PeftFamilyTest, TensorsThatOnlyTrainingNeedsAreNotRead) {
  config_["velora_config"] = {{"num_groups", 1}, {"scale", 1.0}};
  put(kQ + "lora_velora_embed", {4});
  EXPECT_EQ(read().modules.size(), 1u);
}

TEST_F(PeftFamilyTest, BiasesOfASavedBlockStandTwiceInTheFile) {
  const std::string block = kBase + "model.layers.0.self_attn.";
  config_["bias"] = "all";
  config_["modules_to_save"] = {"layers.0.self_attn"};
  config_["target_modules"] = {"down_proj"};
  tensors_.clear();
  put(kBase + "model.layers.1.mlp.down_proj.lora_A.weight", {2, 6});
  put(kBase + "model.layers.1.mlp.down_proj.lora_B.weight", {4, 2});
  for (const auto& [projection, rows] : {std::pair("q_proj", 4), std::pair("k_proj", 2), std::pair("v_proj", 2)}) {
    put(block + projection + ".weight", {rows, 4});
    put(block + projection + ".bias", {rows}, 5);
    put(block + "modules_to_save.default." + projection + ".bias", {rows}, 50);
    put(block + "original_module." + projection + ".bias", {rows}, 60);
  }
  EXPECT_THAT(weightsOf(read(), kQkvBias), ElementsAre(5, 6, 7, 8, 5, 6, 5, 6));
  tensors_.erase(block + "k_proj.bias");
  EXPECT_THAT(refusal(), HasSubstr("no tensor of 'model.layers.0.self_attn.k_proj.bias'"));
}

// GPT-NeoX's output head has two names in sources, and its weight table lists every source once for each name.
TEST_F(PeftFamilyTest, TheBiasOfAFusedLinearIsReadOnceIfSourcesHaveTwoSpellings) {
  WeightRow& bias = *std::find_if(model_.table.begin(), model_.table.end(),
                                  [](const WeightRow& row) { return row.slot == kQkvBias; });
  for (WeightSource& source : bias.sources) {
    source.name = "model.layers.{layer}.self_attn.qkv.bias";
    source.in_source = {.total = 8, .begin = source.row_begin, .block = source.rows, .stride = 8};
  }
  const std::vector<WeightSource> own = bias.sources;
  for (WeightSource source : own) {
    source.spelling = 1;
    bias.sources.push_back(source);
  }
  config_["bias"] = "all";
  put(kBase + "model.layers.0.self_attn.qkv.bias", {8}, 5);
  EXPECT_THAT(weightsOf(read(), kQkvBias), ElementsAre(5, 6, 7, 8, 9, 10, 11, 12));
}

TEST_F(PeftFamilyTest, TheEmbeddingOfASavedModelStandsTwiceInTheFile) {
  config_["modules_to_save"] = {"embed_tokens"};
  put(kEmbedding + "weight", {8, 4}, 5);
  const std::string wrapped = kBase + "model.modules_to_save.default.";
  put(wrapped + "embed_tokens.weight", {8, 4}, 50);
  EXPECT_THAT(weightsOf(read(), slotOf(TableId::kTokens)).front(), 5);
  put(wrapped + "norm.weight", {4});
  EXPECT_THAT(refusal(), HasSubstr("norm.weight' adapts no module"));
  tensors_.erase(wrapped + "norm.weight");
  config_.erase("modules_to_save");
  EXPECT_THAT(refusal(), HasSubstr("embed_tokens.weight' adapts no module")) << "no block is saved";
  config_["modules_to_save"] = {"embed_tokens"};
  tensors_.erase(kEmbedding + "weight");
  EXPECT_THAT(refusal(), HasSubstr("no tensor of 'model.embed_tokens.weight'"));
}

TEST_F(PeftFamilyTest, AMagnitudeMayStandTwiceIfTheValuesAreEqual) {
  config_["target_modules"] = {"q_proj", "model.embed_tokens"};
  config_["use_dora"] = true;
  put(kQ + "lora_magnitude_vector", {4});
  put(kEmbedding + "lora_embedding_A", {2, 8});
  put(kEmbedding + "lora_embedding_B", {4, 2});
  put(kEmbedding + "lora_magnitude_vector", {4}, 3);
  put(kEmbedding + "lora_magnitude_vector.weight", {4}, 3);
  EXPECT_THAT(moduleOf(read(), kTokenEmbedding).magnitude, ElementsAre(3, 4, 5, 6));
  put(kEmbedding + "lora_magnitude_vector.weight", {4}, 4);
  EXPECT_THAT(refusal(), HasSubstr("is for the same weights as"));
  tensors_.erase(kEmbedding + "lora_magnitude_vector.weight");
  config_["target_modules"] = {"q_proj", "model.embed_tokens", "lm_head"};
  put(kHead + "lora_A.weight", {2, 4});
  put(kHead + "lora_B.weight", {8, 2});
  put(kHead + "lora_magnitude_vector", {8}, 5);
  put(kHead + "lora_magnitude_vector.weight", {8}, 5);
  EXPECT_EQ(moduleOf(read(), kOutputHead).magnitude.front(), 5);
  put(kQ + "lora_magnitude_vector.weight", {4});
  EXPECT_THAT(refusal(), HasSubstr("is for the same weights as")) << "PEFT saves no linear of a layer so";
}

}  // namespace
}  // namespace chorus
