#include "models/starcoder2.h"

#include "models/decoder_rows.h"
#include "models/sliding_window.h"
#include "models/source_config.h"

namespace chorus {
namespace {

ModelConfig starcoder2Config(const Json& given, std::string_view source) {
  SourceKeys keys = {
      .used = decoderKeys(),
      .inert = {"residual_dropout", "embedding_dropout", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                "scale_attn_weights", "activation_function", "layer_norm_epsilon", "rms_norm_eps"},
      .only_at_default = {{"mlp_type", "default"}, {"norm_type", "layer_norm"}}};
  keys.used.insert(keys.used.end(), {"norm_epsilon", "use_bias"});
  addUniformWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"hidden_act", "gelu_pytorch_tanh"},
                                         {"max_position_embeddings", 4096},
                                         {"num_key_value_heads", 2},
                                         {"tie_word_embeddings", true}});
  ModelConfig config = readDecoderConfig(json, source);
  config.architecture = "Starcoder2ForCausalLM";
  config.norm_epsilon = jsonGetOr(json, "norm_epsilon", 1e-5, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRefused, config);
  config.attn_bias = config.mlp_bias = jsonGetOr(json, "use_bias", true, source);
  config.finalize(source);
  readUniformWindow(json, source, std::nullopt, config);
  return config;
}

WeightTable starcoder2Table(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size;
  const std::string layer = "model.layers.{layer}.";
  const std::string attention[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  DecoderRows rows(c);
  rows.embedding("model.embed_tokens.weight");
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "input_layernorm");
  rows.qkv(separateQkvSources(c, layer, attention), separateQkvTargets(c, attention), c.attn_bias);
  rows.dense({layer + "self_attn.o_proj.weight", 0, h}, "self_attn.o_proj", c.attn_bias);
  rows.layerNorm(NormId::kMlpIn, "post_layernorm", layer + "post_attention_layernorm");
  rows.fc({layer + "mlp.c_fc.weight", 0, f}, "mlp.c_fc", c.mlp_bias);
  rows.proj({layer + "mlp.c_proj.weight", 0, h}, "mlp.c_proj", c.mlp_bias);
  rows.layerNorm(NormId::kFinal, "ln_f", "model.norm");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec starcoder2Spec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  return spec;
}

std::vector<FieldValues> starcoder2Fields() {
  std::vector<FieldValues> fields = {{"position_embedding_type", {"rope_gpt_neox"}},
                                     {"hidden_act", activationNames()},
                                     {"attn_bias", {true}},
                                     {"mlp_bias", {true}}};
  addWindowFields(fields);
  return fields;
}
}  // namespace

Architecture starcoder2Architecture() {
  return {.name = "Starcoder2ForCausalLM",
          .configFromHuggingFace = starcoder2Config,
          .weightTable = starcoder2Table,
          .modelSpec = starcoder2Spec,
          .ignored_sources = {"*.rotary_emb.inv_freq", "lm_head.weight"},
          .fields = starcoder2Fields(),
          .models = {"StarCoder 2"},
          .structure = "grouped-query attention, layer norms, sliding windows, an MLP without a gate, optional biases"};
}

}  // namespace chorus
