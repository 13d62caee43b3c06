#include "models/gpt2_blocks.h"

#include <utility>

namespace chorus {

SourceKeys gpt2Keys() {
  return {.used = {"n_embd", "n_inner", "n_layer", "n_head", "n_positions", "vocab_size", "activation_function",
                   "layer_norm_epsilon", "tie_word_embeddings"},
          .inert = {"n_ctx", "embd_pdrop", "attn_pdrop", "summary_activation", "summary_first_dropout",
                    "summary_proj_to_labels", "summary_type", "summary_use_proj"},
          .only_at_default = {{"scale_attn_weights", true}}};
}

ModelConfig readGpt2Config(const Json& given, std::string_view source) {
  const Json json = withDefaults(given, {{"n_positions", 1024},
                                         {"activation_function", "gelu_new"},
                                         {"layer_norm_epsilon", 1e-5},
                                         {"tie_word_embeddings", true}});
  ModelConfig config;
  config.hidden_size = jsonGet<int64_t>(json, "n_embd", source);
  config.intermediate_size = optionalSize(json, "n_inner", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "n_layer", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "n_head", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGet<int64_t>(json, "n_positions", source);
  config.hidden_act = jsonGet<std::string>(json, "activation_function", source);
  config.norm_epsilon = jsonGet<double>(json, "layer_norm_epsilon", source);
  config.tie_word_embeddings = jsonGet<bool>(json, "tie_word_embeddings", source);
  return config;
}

WeightTable gpt2Table(const ModelConfig& c, const Gpt2Form& form) {
  const int64_t h = c.hidden_size, f = c.intermediate_size;
  const std::string layer = "transformer.h.{layer}.";
  const auto linear = [&](const std::string& module, int64_t out) -> WeightSource {
    return {.name = layer + module + ".weight", .rows = out, .transform = {.transposed = form.transposed}};
  };
  DecoderRows rows(c);
  rows.embedding("transformer.wte.weight");
  rows.positions({.name = "transformer.wpe.weight", .rows = c.max_position_embeddings});
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "ln_1");
  form.qkv(rows);
  rows.dense(linear("attn.c_proj", h), "attn.c_proj", true);
  rows.layerNorm(NormId::kMlpIn, "post_layernorm", layer + "ln_2");
  rows.fc(linear("mlp.c_fc", f), "mlp.c_fc", true);
  rows.proj(linear("mlp.c_proj", h), "mlp.c_proj", true);
  rows.layerNorm(NormId::kFinal, "ln_f", "transformer.ln_f");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec gpt2Spec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  spec.embedding.positions = true;
  return spec;
}

std::vector<FieldValues> gpt2Fields() {
  return {{"position_embedding_type", {"learned_absolute"}},
          {"hidden_act", activationNames()},
          {"attn_bias", {true}},
          {"mlp_bias", {true}},
          {"bias", {true}}};
}

std::vector<std::string> gpt2IgnoredSources() { return {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"}; }

}  // namespace chorus
