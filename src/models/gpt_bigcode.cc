#include "models/gpt_bigcode.h"

#include "lora/module_ids.h"
#include "models/decoder_rows.h"
#include "models/source_config.h"

namespace chorus {
namespace {

ModelConfig gptBigCodeConfig(const Json& json, std::string_view source) {
  checkSourceKeys(
      json,
      {.used = {"n_embd", "n_inner", "n_layer", "n_head", "n_positions", "vocab_size", "multi_query",
                "activation_function", "layer_norm_epsilon", "tie_word_embeddings"},
       .inert = {"n_ctx", "embd_pdrop", "attn_pdrop", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                 "num_key_value_heads", "inference_runner", "validate_runner_input", "pre_allocate_kv_cache",
                 "pad_key_length", "max_batch_size", "max_sequence_length", "summary_activation",
                 "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"},
       .only_at_default = {{"scale_attn_weights", true}}},
      source);
  ModelConfig config;
  config.architecture = "GPTBigCodeForCausalLM";
  config.hidden_size = jsonGet<int64_t>(json, "n_embd", source);
  config.intermediate_size = optionalSize(json, "n_inner", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "n_layer", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "n_head", source);
  config.num_key_value_heads = jsonGetOr(json, "multi_query", true, source) ? 1 : config.num_attention_heads;
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "n_positions", 1024, source);
  config.hidden_act = jsonGetOr<std::string>(json, "activation_function", "gelu_pytorch_tanh", source);
  config.norm_epsilon = jsonGetOr(json, "layer_norm_epsilon", 1e-5, source);
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", true, source);
  config.position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  config.attn_bias = config.mlp_bias = true;
  config.finalize(source);
  return config;
}

WeightTable gptBigCodeTable(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size, all = QkvRows(c).all;
  const std::string layer = "transformer.h.{layer}.", attention = "attn.c_attn";
  DecoderRows rows(c);
  rows.embedding("transformer.wte.weight");
  rows.positions({.name = "transformer.wpe.weight", .rows = c.max_position_embeddings});
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "ln_1");
  if (c.num_key_value_heads == 1) {
    // With one KV head, the source has the rows in our order.
    rows.qkv({{layer + attention + ".weight", 0, all}}, {{kAttnQkv, attention, 0, all}}, true);
  } else {
    rows.groupedQkv(layer, attention, true);
  }
  rows.dense({layer + "attn.c_proj.weight", 0, h}, "attn.c_proj", true);
  rows.layerNorm(NormId::kMlpIn, "post_layernorm", layer + "ln_2");
  rows.fc({layer + "mlp.c_fc.weight", 0, f}, "mlp.c_fc", true);
  rows.proj({layer + "mlp.c_proj.weight", 0, h}, "mlp.c_proj", true);
  rows.layerNorm(NormId::kFinal, "ln_f", "transformer.ln_f");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec gptBigCodeSpec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  spec.embedding.positions = true;
  return spec;
}
}  // namespace

Architecture gptBigCodeArchitecture() {
  return {.name = "GPTBigCodeForCausalLM",
          .configFromHuggingFace = gptBigCodeConfig,
          .weightTable = gptBigCodeTable,
          .modelSpec = gptBigCodeSpec,
          // Masks in old files, and the output head of files whose model ties it.
          .ignored_sources = {"*.attn.bias", "*.attn.masked_bias", "transformer.bias", "lm_head.weight"},
          .fields = {{"position_embedding_type", {"learned_absolute"}},
                     {"hidden_act", activationNames()},
                     {"attn_bias", {true}},
                     {"mlp_bias", {true}},
                     {"bias", {true}}},
          .models = {"StarCoder", "SantaCoder"},
          .structure = "GPT-2 with one KV head, or with fused q, k and v by head"};
}

}  // namespace chorus
