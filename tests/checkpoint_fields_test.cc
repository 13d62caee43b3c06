// Fields of a checkpoint's config.json that change the logits: each has the effect of a plain reference, or is refused
// by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/error_of.h"
#include "engine/build.h"
#include "engine/rank_group.h"
#include "golden_tolerance.h"
#include "kernels/default_isa.h"
#include "kernels/linear/linear.h"
#include "plain_llama.h"
#include "teacher_forced.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double geluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double relu(double x) { return x > 0 ? x : 0; }

// The float32 checkpoint of a random model. Tests edit and build it.
class CheckpointFields : public testing::Test {
 protected:
  CheckpointFields() {
    std::mt19937_64 rng(20260714);
    model_ = randomLlamaShape(rng);
    fillWeights(model_, rng);
    writeModel(model_, dir_.path() / "model");
    for (int i = 0; i < 40; ++i) tokens_.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(model_.vocab)));
    convertModel(dir_.path() / "model", checkpoint_, {.dtype = DType::kFloat32, .workers = 1});
    original_ = readJsonFile(checkpoint_ / "config.json");
  }

  // Logits of the model after these fields are added to its config.
  std::vector<float> logitsWith(const Json& fields, const BuildConfig& build = testBuildConfig()) {
    Json config = original_;
    config.update(fields);
    writeFileAtomically(checkpoint_ / "config.json", config.dump());
    buildEngine(checkpoint_, dir_.path() / "engine", build, 1);
    RankGroup ranks(RankGroup::loadEngines(dir_.path() / "engine"), {.threads = 2}, kTeacherForcedOptions);
    model_config_ = ranks.engine().config();
    return teacherForced(ranks, tokens_, 0, nullptr);
  }

  // Expects the reference's logits, and logits that differ from those without the fields.
  void expectActs(const Json& fields, const PlainNetwork& network) {
    SCOPED_TRACE(fields.dump());
    const std::vector<float> logits = logitsWith(fields);
    const std::vector<float> expected = plainLogits(model_, network, tokens_);
    const double tolerance = goldenTolerance(DType::kFloat32, linearInputType(defaultIsa(), DType::kFloat32),
                                             model_config_, std::ssize(tokens_), largestOf(expected));
    EXPECT_LE(largestDifference(logits, expected), tolerance);
    if (fields != Json::object()) {
      EXPECT_GT(largestDifference(logits, plainLogits(model_, {.activation = silu}, tokens_)), tolerance);
    }
  }

  std::string refusal(const Json& fields) {
    return errorOf([&] { logitsWith(fields); });
  }

  const TempDir dir_;
  const std::filesystem::path checkpoint_ = dir_.path() / "checkpoint";
  RandomLlama model_;
  std::vector<int32_t> tokens_;
  Json original_;
  ModelConfig model_config_;
};

TEST_F(CheckpointFields, TheConverterNamesThePositionEmbedding) {
  EXPECT_EQ(original_["position_embedding_type"], "rope_gpt_neox");
  expectActs(Json::object(), {.activation = silu});
}

TEST_F(CheckpointFields, PositionEmbeddingTypeActsOrIsRefused) {
  expectActs({{"position_embedding_type", "rope_gptj"}}, {.activation = silu, .adjacent_pairs = true});
  for (const char* other : {"learned_absolute", "alibi", "alibi_with_scale", "relative"}) {
    EXPECT_THAT(refusal({{"position_embedding_type", other}}),
                AllOf(HasSubstr("config.json: position_embedding_type \"" + std::string(other) + "\""),
                      HasSubstr("LlamaForCausalLM; supported: \"rope_gpt_neox\", \"rope_gptj\"")));
  }
  original_.erase("position_embedding_type");
  EXPECT_THAT(refusal(Json::object()), HasSubstr("\"learned_absolute\" (also when the field is absent)"));
}

TEST_F(CheckpointFields, HiddenActActsOrIsRefused) {
  expectActs({{"hidden_act", "gelu"}}, {.activation = gelu});
  expectActs({{"hidden_act", "gelu_pytorch_tanh"}}, {.activation = geluTanh});
  expectActs({{"hidden_act", "gelu_new"}}, {.activation = geluTanh});
  expectActs({{"hidden_act", "relu"}}, {.activation = relu});
  for (const char* other : {"swiglu", "quick_gelu", "identity"}) {
    EXPECT_THAT(refusal({{"hidden_act", other}}),
                AllOf(HasSubstr("hidden_act \"" + std::string(other) + "\""), HasSubstr("\"silu\", \"gelu\"")));
  }
}

TEST_F(CheckpointFields, QScalingActs) {
  expectActs({{"q_scaling", 0.25}}, {.activation = silu, .q_scaling = 0.25});
  expectActs({{"q_scaling", 3}}, {.activation = silu, .q_scaling = 3});
  EXPECT_THAT(refusal({{"q_scaling", 0}}), HasSubstr("q_scaling must be above 0"));
}

TEST_F(CheckpointFields, LogitsDtypeActs) {
  const std::vector<float> whole = logitsWith(Json::object());
  std::vector<float> half = whole, brain = whole;
  for (float& value : half) value = toFloat(toF16(value));
  for (float& value : brain) value = toFloat(toBf16(value));
  EXPECT_NE(half, whole);
  EXPECT_EQ(logitsWith({{"logits_dtype", "float16"}}), half);
  EXPECT_EQ(logitsWith({{"logits_dtype", "bfloat16"}}), brain);
  // `build --logits_dtype` takes precedence over the checkpoint's field.
  BuildConfig build = testBuildConfig();
  build.logits_dtype = DType::kFloat32;
  EXPECT_EQ(logitsWith({{"logits_dtype", "float16"}}, build), whole);
  EXPECT_THAT(refusal({{"logits_dtype", "int8"}}), HasSubstr("'logits_dtype' must be float32, float16 or bfloat16"));
}

TEST_F(CheckpointFields, QkLayernormIsRefused) {
  EXPECT_THAT(refusal({{"qk_layernorm", true}}), HasSubstr("qk_layernorm true is not supported by LlamaForCausalLM"));
}

TEST_F(CheckpointFields, FlatMoeKeysAreRefusedAsTheObjectIs) {
  EXPECT_THAT(refusal({{"moe_num_experts", 8}, {"moe_top_k", 2}}), HasSubstr("moe_num_experts 8 is not supported"));
  EXPECT_THAT(refusal({{"moe", {{"num_experts", 8}, {"top_k", 2}}}}), HasSubstr("moe.num_experts 8 is not supported"));
  EXPECT_EQ(refusal({{"moe", {{"num_experts", 0}, {"top_k", 0}}}, {"moe_num_experts", 0}, {"moe_top_k", 0}}), "");
}

TEST_F(CheckpointFields, NumKeyValueHeadsOfZeroIsAnError) {
  EXPECT_THAT(refusal({{"num_key_value_heads", 0}}), HasSubstr("num_key_value_heads is 0; it must be from 1 to"));
}

TEST_F(CheckpointFields, LLaMAForCausalLMIsLlamaForCausalLM) {
  expectActs({{"architecture", "LLaMAForCausalLM"}, {"q_scaling", 2}}, {.activation = silu, .q_scaling = 2});
}

}  // namespace
}  // namespace chorus::test
