#include "models/bloom.h"

#include "models/decoder_rows.h"
#include "models/source_config.h"

namespace chorus {
namespace {

// Files have a size under one of two keys.
template <typename T>
T sizeOf(const Json& json, const char* key, const char* other, std::string_view source) {
  const auto value = json.find(key);
  return jsonGet<T>(json, value == json.end() || value->is_null() ? other : key, source);
}

ModelConfig bloomConfig(const Json& json, std::string_view source) {
  checkSourceKeys(
      json,
      {.used = {"n_embed", "hidden_size", "n_layer", "num_hidden_layers", "n_head", "num_attention_heads", "vocab_size",
                "seq_length", "layer_norm_epsilon", "tie_word_embeddings"},
       // The first two change the order of sums. transformers ignores the others.
       .inert = {"pretraining_tp", "slow_but_exact", "offset_alibi", "n_inner", "attention_softmax_in_fp32",
                 "masked_softmax_fusion", "bias_dropout_fusion", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"},
       .only_at_default = {{"apply_residual_connection_post_layernorm", false}}},
      source);
  ModelConfig config;
  config.architecture = "BloomForCausalLM";
  config.hidden_size = sizeOf<int64_t>(json, "n_embed", "hidden_size", source);
  config.num_hidden_layers = sizeOf<int32_t>(json, "n_layer", "num_hidden_layers", source);
  config.num_attention_heads = sizeOf<int32_t>(json, "n_head", "num_attention_heads", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  // ALiBi has no last position. This is the length of the sequences that the model was trained with.
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "seq_length", 2048, source);
  config.hidden_act = "gelu_pytorch_tanh";
  config.norm_epsilon = jsonGetOr(json, "layer_norm_epsilon", 1e-5, source);
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", true, source);
  config.position_embedding_type = PositionEmbedding::kAlibi;
  config.attn_bias = config.mlp_bias = true;
  config.finalize(source);
  return config;
}

WeightTable bloomTable(const ModelConfig& c) {
  const std::string layer = "transformer.h.{layer}.";
  DecoderRows rows(c);
  rows.embedding("transformer.word_embeddings.weight");
  rows.layerNorm(NormId::kEmbedding, "ln_embed", "transformer.word_embeddings_layernorm");
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + "input_layernorm");
  rows.groupedQkv(layer, "self_attention.query_key_value", true);
  rows.dense({layer + "self_attention.dense.weight", 0, c.hidden_size}, "self_attention.dense", true);
  rows.layerNorm(NormId::kMlpIn, "post_layernorm", layer + "post_attention_layernorm");
  rows.fc({layer + "mlp.dense_h_to_4h.weight", 0, c.intermediate_size}, "mlp.dense_h_to_4h", true);
  rows.proj({layer + "mlp.dense_4h_to_h.weight", 0, c.hidden_size}, "mlp.dense_4h_to_h", true);
  rows.layerNorm(NormId::kFinal, "ln_f", "transformer.ln_f");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec bloomSpec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  // TensorRT-LLM's checkpoints call it "gelu".
  layer.mlp.activation = Activation::kGeluTanh;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  spec.embedding.norm = true;
  return spec;
}
}  // namespace

Architecture bloomArchitecture() {
  return {.name = "BloomForCausalLM",
          .configFromHuggingFace = bloomConfig,
          .weightTable = bloomTable,
          .modelSpec = bloomSpec,
          // Files have the output head of a tied model too.
          .ignored_sources = {"lm_head.weight"},
          .fields = {{"position_embedding_type", {"alibi"}},
                     {"hidden_act", {"gelu", "gelu_pytorch_tanh"}},
                     {"attn_bias", {true}},
                     {"mlp_bias", {true}},
                     {"bias", {true}}},
          .models = {"BLOOM", "BLOOMZ"},
          .structure = "layer norms, one of them after the embedding, biases, fused qkv by head"};
}

}  // namespace chorus
