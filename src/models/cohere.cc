#include "models/cohere.h"

#include "base/error.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

// TensorRT-LLM's field for logit_scale, and its value in a config without the field.
constexpr const char* kLogitScale = "output_multiplier_scale";
constexpr double kDefaultLogitScale = 0.0625;

SourceKeys cohereKeys() {
  SourceKeys keys = llamaKeys();
  keys.used.insert(keys.used.end(), {"attention_bias", "layer_norm_eps", "logit_scale"});
  // tie_word_embeddings decides whether the head shares the embedding, and layer_types which layers have a window.
  keys.inert = {"use_embedding_sharing",       "use_parallel_embedding", "layer_switch",
                "order_of_interleaved_layers", "pretraining_tp",         "cache_implementation"};
  keys.only_at_default.insert(keys.only_at_default.end(), {{"use_qk_norm", false},
                                                           {"use_gated_activation", true},
                                                           {"use_parallel_block", true},
                                                           {"position_embedding_type", "rope_gptj"},
                                                           {"rotary_pct", 1.0}});
  return keys;
}

ModelConfig readCohere(const Json& given, std::string_view source, double rope_theta) {
  const Json json = withDefaults(
      given, {{"max_position_embeddings", 8192}, {"tie_word_embeddings", true}, {"rope_theta", rope_theta}});
  ModelConfig config = readLlamaConfig(json, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptj;
  config.norm_epsilon = jsonGetOr(json, "layer_norm_eps", 1e-5, source);
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  const auto scale = jsonGetOr(json, "logit_scale", kDefaultLogitScale, source);
  if (!isFactor(scale)) {
    fail(ErrorCode::kInvalidArgument, "{}: 'logit_scale' must be from {:g} to {:g}", source, kLeastFactor,
         kGreatestFactor);
  }
  config.extra[kLogitScale] = scale;
  return config;
}

ModelConfig cohereConfig(const Json& json, std::string_view source) {
  checkSourceKeys(json, cohereKeys(), source);
  ModelConfig config = readCohere(json, source, 500000.0);
  config.architecture = "CohereForCausalLM";
  config.finalize(source);
  return config;
}

ModelConfig cohere2Config(const Json& json, std::string_view source) {
  SourceKeys keys = cohereKeys();
  addWindowKeys(keys);
  addWindowPatternKeys(keys);
  checkSourceKeys(json, keys, source);
  ModelConfig config = readCohere(json, source, 10000.0);
  config.architecture = "Cohere2ForCausalLM";
  config.finalize(source);
  readSlidingWindow(json, source, {.window = 4096, .may_be_null = false, .slides = slidingByPattern(json, 4, source)},
                    config);
  return config;
}

WeightTable cohereTable(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias, .dense_bias = c.attn_bias, .residual = ResidualForm::kParallelShared});
}

ModelSpec cohereSpec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.residual = ResidualForm::kParallelShared;
  ModelSpec spec = modelSpec(config, layer);
  spec.norm.kind = NormKind::kLayerNorm;
  spec.head.scale = static_cast<float>(jsonGetOr(config.extra, kLogitScale, kDefaultLogitScale, "config.json"));
  return spec;
}

ModelSpec cohere2Spec(const ModelConfig& config) {
  ModelSpec spec = cohereSpec(config);
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.window == 0) layer.attention.rope = {};
  }
  return spec;
}

std::vector<FieldValues> cohereFields() {
  return {{"position_embedding_type", {"rope_gptj"}},
          {"hidden_act", activationNames()},
          {"attn_bias", {true}},
          {.field = kLogitScale, .range = FieldRange::kFactor}};
}
std::vector<FieldValues> cohere2Fields() {
  std::vector<FieldValues> fields = cohereFields();
  addWindowFields(fields);
  return fields;
}
}  // namespace

Architecture cohereArchitecture() {
  return {.name = "CohereForCausalLM",
          .configFromHuggingFace = cohereConfig,
          .weightTable = cohereTable,
          .modelSpec = cohereSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = cohereFields(),
          .models = {"Command R", "Aya 23"},
          .structure =
              "parallel blocks with one layer norm without bias, scaled logits; norms of query and key heads (Command "
              "R+) are refused"};
}

Architecture cohere2Architecture() {
  return {.name = "Cohere2ForCausalLM",
          .configFromHuggingFace = cohere2Config,
          .weightTable = cohereTable,
          .modelSpec = cohere2Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = cohere2Fields(),
          .models = {"Command R7B", "Command A"},
          .structure = "Cohere with a sliding window and RoPE in some layers, neither in the others"};
}

}  // namespace chorus
