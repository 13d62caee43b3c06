#include "models/gpt2.h"

#include "lora/module_ids.h"
#include "models/decoder_rows.h"
#include "models/source_config.h"

namespace chorus {
namespace {

ModelConfig gpt2Config(const Json& json, std::string_view source) {
  checkSourceKeys(json,
                  {.used = {"n_embd", "n_inner", "n_layer", "n_head", "n_positions", "vocab_size",
                            "activation_function", "layer_norm_epsilon", "tie_word_embeddings"},
                   .inert = {"n_ctx", "embd_pdrop", "attn_pdrop", "reorder_and_upcast_attn", "summary_activation",
                             "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"},
                   .only_at_default = {{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}}},
                  source);
  ModelConfig config;
  config.architecture = "GPT2LMHeadModel";
  config.hidden_size = jsonGet<int64_t>(json, "n_embd", source);
  config.intermediate_size = optionalSize(json, "n_inner", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "n_layer", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "n_head", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "n_positions", 1024, source);
  config.hidden_act = jsonGetOr<std::string>(json, "activation_function", "gelu_new", source);
  config.norm_epsilon = jsonGetOr(json, "layer_norm_epsilon", 1e-5, source);
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", true, source);
  config.position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  config.attn_bias = config.mlp_bias = true;
  config.finalize(source);
  return config;
}

// A linear of transformers' Conv1D, whose weight is [in, out].
WeightSource transposed(std::string name, int64_t rows) {
  return {.name = std::move(name), .rows = rows, .transform = {.transposed = true}};
}

WeightTable gpt2Table(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size, all = QkvRows(c).all;
  const std::string layer = "transformer.h.{layer}.";
  DecoderRows rows(c);
  rows.embedding("transformer.wte.weight");
  rows.positions({.name = "transformer.wpe.weight", .rows = c.max_position_embeddings});
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "ln_1");
  rows.qkv({transposed(layer + "attn.c_attn.weight", all)}, {{kAttnQkv, "attn.c_attn", 0, all}}, true);
  rows.dense(transposed(layer + "attn.c_proj.weight", h), "attn.c_proj", true);
  rows.layerNorm(NormId::kMlpIn, "post_layernorm", layer + "ln_2");
  rows.fc(transposed(layer + "mlp.c_fc.weight", f), "mlp.c_fc", true);
  rows.proj(transposed(layer + "mlp.c_proj.weight", h), "mlp.c_proj", true);
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
}  // namespace

Architecture gpt2Architecture() {
  return {.name = "GPT2LMHeadModel",
          .configFromHuggingFace = gpt2Config,
          .weightTable = gpt2Table,
          .modelSpec = gpt2Spec,
          // Masks in old files, and the output head of files whose model ties it.
          .ignored_sources = {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"},
          .fields = {{"position_embedding_type", {"learned_absolute"}},
                     {"hidden_act", activationNames()},
                     {"attn_bias", {true}},
                     {"mlp_bias", {true}},
                     {"bias", {true}}},
          .models = {"GPT-2"},
          .structure = "layer norms, biases, MLP without a gate"};
}

}  // namespace chorus
