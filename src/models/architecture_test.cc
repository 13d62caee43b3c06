#include "models/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"
#include "checkpoint/config_fields.h"

namespace chorus {
namespace {

using testing::HasSubstr;

Json checkpoint() {
  return Json::parse(R"({"architecture": "LlamaForCausalLM", "dtype": "float16", "vocab_size": 100,
    "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 6, "hidden_act": "silu",
    "position_embedding_type": "rope_gpt_neox"})");
}
std::string refusal(const Json& json) {
  return errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); });
}
Json with(std::string_view field, const Json& value) {
  Json json = checkpoint();
  const size_t dot = field.find('.');
  if (dot == std::string_view::npos) {
    json[std::string(field)] = value;
  } else {
    json[std::string(field.substr(0, dot))][std::string(field.substr(dot + 1))] = value;
  }
  return json;
}

TEST(ArchitectureTest, NamesTheKnownOnes) {
  EXPECT_EQ(findArchitecture("LlamaForCausalLM").name, "LlamaForCausalLM");
  EXPECT_THAT(errorOf([] { findArchitecture("ZebraForCausalLM"); }), HasSubstr("LlamaForCausalLM, MistralForCausalLM"));
}

TEST(ArchitectureTest, LLaMAForCausalLMIsLlamaForCausalLM) {
  EXPECT_EQ(&findArchitecture("LLaMAForCausalLM"), &findArchitecture("LlamaForCausalLM"));
}

TEST(ArchitectureTest, EveryFieldThatChangesTheNumbersIsListedByTheArchitectureOrRefused) {
  EXPECT_EQ(refusal(checkpoint()), "");
  size_t structural = 0;
  for (const ConfigField& field : configFields()) {
    if (field.use != FieldUse::kStructural) continue;
    ++structural;
    const std::string name(field.name);
    SCOPED_TRACE(name);
    const std::string key = name.substr(name.find('.') + 1);
    for (const Json& value : {Json("zebra"), Json(1.0e9), Json({{"a", 1}})}) {
      EXPECT_THAT(refusal(with(name, value)), HasSubstr(key)) << value.dump();
    }
    for (const Json& neutral : field.neutral) EXPECT_EQ(refusal(with(name, neutral)), "") << neutral.dump();
    if (name != "hidden_act" && name != "position_embedding_type") {
      EXPECT_EQ(refusal(with(name, nullptr)), "");
    }
  }
  EXPECT_GT(structural, 30u);
  EXPECT_THAT(refusal(with("quantization.clamp_val", {-1.0, 1.0})),
              HasSubstr("quantization.clamp_val [-1.0,1.0] is not"));
  EXPECT_THAT(refusal(with("moe", 5)), HasSubstr("moe.num_experts 5"));
}

TEST(ArchitectureTest, ARefusalNamesFieldValueAndWhatIsSupported) {
  EXPECT_EQ(refusal(with("hidden_act", "mish")),
            "c: hidden_act \"mish\" is not supported by LlamaForCausalLM; supported: \"silu\", \"gelu\", \"gelu_new\", "
            "\"gelu_fast\", \"gelu_pytorch_tanh\", \"relu\", \"relu2\", \"squared-relu\"");
  EXPECT_EQ(refusal(with("embedding_multiplier", 12.0)),
            "c: embedding_multiplier 12.0 is not supported by LlamaForCausalLM; supported: 1.0");
  EXPECT_EQ(refusal(with("sliding_window", 4096)),
            "c: sliding_window 4096 is not supported by LlamaForCausalLM; supported: only a config without it");
  EXPECT_EQ(refusal(with("embedding_multiplier", 1)), "");
}

}  // namespace
}  // namespace chorus
