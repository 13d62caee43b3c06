#include "models/falcon.h"

#include "base/error.h"
#include "lora/module_ids.h"
#include "models/decoder_rows.h"
#include "models/source_config.h"

namespace chorus {
namespace {

// Fields of a checkpoint. kNorms is not TensorRT-LLM's: the new decoder architecture has two norms, or one for both
// blocks (Falcon 2).
constexpr const char* kBias = "bias";
constexpr const char* kParallel = "parallel_attention";
constexpr const char* kNewArchitecture = "new_decoder_architecture";
constexpr const char* kNorms = "num_ln_in_parallel_attn";

bool isSet(const ModelConfig& config, const char* field) {
  return jsonGetOr(config.extra, field, false, "config.json");
}

// Whether both blocks of a layer read the same residual.
bool isParallel(const ModelConfig& config) { return isSet(config, kParallel) || isSet(config, kNewArchitecture); }
bool hasTwoNorms(const ModelConfig& config) {
  return isSet(config, kNewArchitecture) && jsonGetOr<int32_t>(config.extra, kNorms, 2, "config.json") == 2;
}

ModelConfig falconConfig(const Json& json, std::string_view source) {
  checkSourceKeys(json,
                  {.used = {"hidden_size", "ffn_hidden_size", "num_hidden_layers", "num_attention_heads",
                            "num_kv_heads", "vocab_size", "max_position_embeddings", "activation", "layer_norm_epsilon",
                            "tie_word_embeddings", "bias", "parallel_attn", "multi_query", kNewArchitecture, kNorms,
                            "alibi", "rope_theta", "rope_scaling", "rope_parameters"},
                   .inert = {},
                   .only_at_default = {{"apply_residual_connection_post_layernorm", false}}},
                  source);
  ModelConfig config;
  config.architecture = "FalconForCausalLM";
  config.hidden_size = jsonGet<int64_t>(json, "hidden_size", source);
  config.intermediate_size = optionalSize(json, "ffn_hidden_size", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "num_hidden_layers", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "num_attention_heads", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 2048, source);
  config.hidden_act = jsonGetOr<std::string>(json, "activation", "gelu", source);
  config.norm_epsilon = jsonGetOr(json, "layer_norm_epsilon", 1e-5, source);
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", true, source);
  if (jsonGetOr(json, "alibi", false, source)) {
    config.position_embedding_type = PositionEmbedding::kAlibiWithScale;
  } else {
    config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
    readRotary(json, source, PartialRotary::kRefused, config);
  }
  const bool new_architecture = jsonGetOr(json, kNewArchitecture, false, source);
  const bool parallel = jsonGetOr(json, "parallel_attn", true, source);
  if (new_architecture && !parallel) {
    fail(ErrorCode::kUnsupported, "{}: 'parallel_attn' false is not supported with '{}'", source, kNewArchitecture);
  }
  if (new_architecture) {
    config.num_key_value_heads = static_cast<int32_t>(optionalSize(json, "num_kv_heads", source));
    const auto norms = jsonGetOr<int32_t>(json, kNorms, 2, source);
    if (norms != 1 && norms != 2) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be 1 or 2", source, kNorms);
    config.extra[kNorms] = norms;
  } else {
    config.num_key_value_heads = jsonGetOr(json, "multi_query", true, source) ? 1 : config.num_attention_heads;
  }
  config.extra[kBias] = jsonGetOr(json, "bias", false, source);
  config.extra[kParallel] = parallel;
  config.extra[kNewArchitecture] = new_architecture;
  config.finalize(source);
  return config;
}

WeightTable falconTable(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size;
  const std::string layer = "transformer.h.{layer}.";
  const bool bias = isSet(c, kBias);
  DecoderRows rows(c);
  rows.embedding("transformer.word_embeddings.weight");
  rows.layerNorm(NormId::kAttentionIn, "input_layernorm", layer + (hasTwoNorms(c) ? "ln_attn" : "input_layernorm"));
  // Older forms of Falcon have a single KV head, or as many KV heads as query heads; for them the order by KV group is
  // the order that the source has.
  rows.groupedQkv(layer, "self_attention.query_key_value", bias);
  rows.dense({layer + "self_attention.dense.weight", 0, h}, "self_attention.dense", bias);
  if (hasTwoNorms(c)) {
    rows.layerNorm(NormId::kMlpIn, "mlp_layernorm", layer + "ln_mlp");
  } else if (!isParallel(c)) {
    rows.layerNorm(NormId::kMlpIn, "post_layernorm", layer + "post_attention_layernorm");
  }
  rows.fc({layer + "mlp.dense_h_to_4h.weight", 0, f}, "mlp.dense_h_to_4h", bias);
  rows.proj({layer + "mlp.dense_4h_to_h.weight", 0, h}, "mlp.dense_4h_to_h", bias);
  rows.layerNorm(NormId::kFinal, "ln_f", "transformer.ln_f");
  rows.head("lm_head.weight");
  return rows.take();
}

ModelSpec falconSpec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.mlp.kind = MlpKind::kPlain;
  if (isParallel(config)) {
    layer.residual = hasTwoNorms(config) ? ResidualForm::kParallel : ResidualForm::kParallelShared;
  }
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.norm.bias = true;
  return spec;
}
}  // namespace

Architecture falconArchitecture() {
  return {
      .name = "FalconForCausalLM",
      .configFromHuggingFace = falconConfig,
      .weightTable = falconTable,
      .modelSpec = falconSpec,
      .ignored_sources = {"*.rotary_emb.inv_freq", "lm_head.weight"},
      .fields = {{"position_embedding_type", {"rope_gpt_neox", "alibi_with_scale"}},
                 {"hidden_act", activationNames()},
                 {kBias, {true}},
                 {kParallel, {true}},
                 {kNewArchitecture, {true}},
                 {kNorms, {1}}},
      .models = {"Falcon", "Falcon 2"},
      .structure =
          "parallel blocks or sequential ones, multi-query or grouped-query attention, layer norms, optional biases"};
}

}  // namespace chorus
