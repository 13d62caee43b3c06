#include "models/gpt_neox.h"

#include "models/decoder_rows.h"
#include "models/source_config.h"
#include "models/weight_rows.h"

namespace chorus {
namespace {

// A key of the source and a field of a checkpoint: whether both blocks of a layer read the same residual.
constexpr const char* kParallelResidual = "use_parallel_residual";

// transformers reads RoPE's base and its share of a head under names of this model's own, unless rope_parameters (or
// rope_scaling) has them. Files of transformers 4 have the usual names beside them, with equal values.
Json withUsualRotaryKeys(Json json) {
  const auto value = [&](const char* key, const Json& otherwise) {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? otherwise : *found;
  };
  json["rope_theta"] = value("rotary_emb_base", 10000.0);
  json["partial_rotary_factor"] = value("rotary_pct", 0.25);
  return json;
}

ModelConfig gptNeoxConfig(const Json& json, std::string_view source) {
  checkSourceKeys(json,
                  {.used = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "vocab_size", "max_position_embeddings", "hidden_act", "layer_norm_eps",
                            "tie_word_embeddings", "attention_bias", kParallelResidual, "rotary_pct", "rotary_emb_base",
                            "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"},
                   .inert = {"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"},
                   .only_at_default = {}},
                  source);
  ModelConfig config;
  config.architecture = "GPTNeoXForCausalLM";
  config.hidden_size = jsonGet<int64_t>(json, "hidden_size", source);
  config.intermediate_size = jsonGet<int64_t>(json, "intermediate_size", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "num_hidden_layers", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "num_attention_heads", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 2048, source);
  config.hidden_act = jsonGetOr<std::string>(json, "hidden_act", "gelu", source);
  config.norm_epsilon = jsonGetOr(json, "layer_norm_eps", 1e-5, source);
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", false, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(withUsualRotaryKeys(json), source, PartialRotary::kRead, config);
  config.attn_bias = jsonGetOr(json, "attention_bias", true, source);
  config.mlp_bias = true;
  config.extra[kParallelResidual] = jsonGetOr(json, kParallelResidual, true, source);
  config.finalize(source);
  return config;
}

WeightTable gptNeoxTable(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size;
  const std::string layer = "gpt_neox.layers.{layer}.";
  DecoderRows rows(c);
  rows.embedding("gpt_neox.embed_in.weight");
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "input_layernorm");
  rows.groupedQkv(layer, "attention.query_key_value", c.attn_bias);
  rows.dense({layer + "attention.dense.weight", 0, h}, "attention.dense", c.attn_bias);
  rows.layerNorm(NormId::kMlpIn, "post_attention_layernorm", layer + "post_attention_layernorm");
  rows.fc({layer + "mlp.dense_h_to_4h.weight", 0, f}, "mlp.dense_h_to_4h", true);
  rows.proj({layer + "mlp.dense_4h_to_h.weight", 0, h}, "mlp.dense_4h_to_h", true);
  rows.layerNorm(NormId::kFinal, "ln_f", "gpt_neox.final_layer_norm");
  rows.head("embed_out.weight");
  // Models of transformers 5 have the name lm_head in memory, and so have adapters that were trained there.
  return withNamings(rows.take(), {{}, {{"embed_out.", "lm_head."}}});
}

ModelSpec gptNeoxSpec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  if (jsonGetOr(config.extra, kParallelResidual, true, "config.json")) layer.residual = ResidualForm::kParallel;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  return spec;
}
}  // namespace

Architecture gptNeoxArchitecture() {
  return {
      .name = "GPTNeoXForCausalLM",
      .configFromHuggingFace = gptNeoxConfig,
      .weightTable = gptNeoxTable,
      .modelSpec = gptNeoxSpec,
      // Masks and rotary frequencies in old files, and the output head of files whose model ties it.
      .ignored_sources = {"*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq", "embed_out.weight",
                          "lm_head.weight"},
      .fields = {{"position_embedding_type", {"rope_gpt_neox"}},
                 {"hidden_act", activationNames()},
                 {"attn_bias", {true}},
                 {"mlp_bias", {true}},
                 {kParallelResidual, {false}}},
      .models = {"GPT-NeoX", "Pythia"},
      .structure =
          "parallel blocks with a norm each or sequential ones, layer norms, partial RoPE, fused q, k and v by head"};
}

}  // namespace chorus
