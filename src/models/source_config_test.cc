// Values that a source config does not give.
#include "models/source_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/architecture.h"

namespace chorus {
namespace {

TEST(SourceConfigTest, DefaultsAreForKeysThatAreMissingOrNull) {
  const Json defaults = {{"a", 1}, {"b", 2}, {"c", 3}, {"num_key_value_heads", 4}, {"head_dim", 5}};
  EXPECT_EQ(withDefaults({{"b", nullptr}, {"c", 7}, {"d", nullptr}}, defaults),
            Json({{"a", 1}, {"b", 2}, {"c", 7}, {"d", nullptr}, {"num_key_value_heads", 4}, {"head_dim", 5}}));
  const Json derived = {{"num_key_value_heads", nullptr}, {"head_dim", nullptr}};
  EXPECT_EQ(withDefaults(derived, {{"num_key_value_heads", 4}, {"head_dim", 5}}), derived);
}

// Null stands for the value of the class in every architecture.
TEST(SourceConfigTest, NullIsTheValueOfAMissingKey) {
  const Json sizes = {{"hidden_size", 8},
                      {"intermediate_size", 8},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 2},
                      {"num_key_value_heads", 1},
                      {"head_dim", 4},
                      {"vocab_size", 5},
                      {"n_embd", 8},
                      {"n_layer", 2},
                      {"n_head", 2},
                      {"rotary_dim", 4}};
  for (const char* architecture :
       {"LlamaForCausalLM", "MistralForCausalLM", "Ministral3ForCausalLM", "SmolLM3ForCausalLM", "CohereForCausalLM",
        "Cohere2ForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM",
        "Gemma3ForCausalLM", "GPT2LMHeadModel", "GPTBigCodeForCausalLM", "GPTJForCausalLM", "Qwen3ForCausalLM"}) {
    SCOPED_TRACE(architecture);
    const auto read = [&](const Json& json) {
      return findArchitecture(architecture).configFromHuggingFace(json, "c").toJson();
    };
    const Json expected = read(sizes);
    for (const char* key : {"hidden_act", "hidden_activation", "activation_function", "max_position_embeddings",
                            "n_positions", "tie_word_embeddings", "rms_norm_eps", "norm_epsilon", "layer_norm_eps",
                            "layer_norm_epsilon", "rope_theta", "attention_bias", "query_pre_attn_scalar"}) {
      Json with_null = sizes;
      with_null[key] = nullptr;
      EXPECT_EQ(read(with_null), expected) << key;
    }
  }
}

}  // namespace
}  // namespace chorus
