#include "models/gemma.h"

#include <cmath>
#include <functional>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

// Fields of a checkpoint and, except kNormsAfter, keys of the source.
constexpr const char* kScoreScalar = "query_pre_attn_scalar";
constexpr const char* kScoreCap = "attn_logit_softcapping";
constexpr const char* kLogitCap = "final_logit_softcapping";
constexpr const char* kLocalBase = "rope_local_base_freq";
constexpr const char* kNormsAfter = "inter_layernorms";  // TensorRT-LLM's: true from Gemma 2 on

Json withGemmaDefaults(const Json& json, int64_t vocab_size, int64_t positions) {
  return withDefaults(json, {{"vocab_size", vocab_size},
                             {"hidden_size", 2304},
                             {"intermediate_size", 9216},
                             {"num_hidden_layers", 26},
                             {"num_attention_heads", 8},
                             {"num_key_value_heads", 4},
                             {"head_dim", 256},
                             {"hidden_activation", "gelu_pytorch_tanh"},
                             {"max_position_embeddings", positions},
                             {"tie_word_embeddings", true},
                             {kScoreScalar, 256}});
}

SourceKeys gemmaKeys() {
  SourceKeys keys = llamaKeys();
  keys.used.insert(keys.used.end(), {"hidden_activation", "attention_bias", kScoreScalar, kScoreCap, kLogitCap});
  addWindowKeys(keys);
  keys.inert = {"sliding_window_size", "cache_implementation"};
  keys.only_at_default.emplace_back("use_bidirectional_attention", false);
  return keys;
}

// A soft cap; null in the source: none.
void readSoftcap(const Json& json, const char* key, const Json& otherwise, ModelConfig& config) {
  const auto found = json.find(key);
  const Json& cap = found == json.end() ? otherwise : *found;
  if (!cap.is_null()) config.extra[key] = cap;
}

ModelConfig gemma1Config(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.emplace_back("attention_bias");
  // transformers 4 read hidden_activation, but its published values are those that hidden_act stands for.
  keys.inert = {"hidden_activation"};
  keys.only_at_default.emplace_back("use_bidirectional_attention", false);
  checkSourceKeys(given, keys, source);
  Json json = withDefaults(given, {{"vocab_size", 256000},
                                   {"hidden_size", 3072},
                                   {"intermediate_size", 24576},
                                   {"num_hidden_layers", 28},
                                   {"num_attention_heads", 16},
                                   {"num_key_value_heads", 16},
                                   {"head_dim", 256},
                                   {"hidden_act", "gelu_pytorch_tanh"},
                                   {"max_position_embeddings", 8192},
                                   {"tie_word_embeddings", true}});
  // The first files say gelu; the models were trained with the approximation by tanh.
  if (json["hidden_act"] == "gelu") json["hidden_act"] = "gelu_pytorch_tanh";
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "GemmaForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.finalize(source);
  return config;
}

// Reads what Gemma 2 and 3 have in common, except RoPE. json: with the defaults.
ModelConfig readGemma(const Json& json, std::string_view source) {
  ModelConfig config = readDecoderConfig(json, source);
  // transformers does not read hidden_act, which some files have as well.
  config.hidden_act = jsonGet<std::string>(json, "hidden_activation", source);
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  config.extra[kScoreScalar] = json.at(kScoreScalar);
  return config;
}

// slides: for layers without layer_types. transformers refuses to run a model without a window.
void readGemmaWindow(const Json& json, std::string_view source, std::function<bool(int32_t layer)> slides,
                     ModelConfig& config) {
  readSlidingWindow(json, source, {.window = 4096, .may_be_null = false, .slides = std::move(slides)}, config);
}

ModelConfig gemma2Config(const Json& given, std::string_view source) {
  checkSourceKeys(given, gemmaKeys(), source);
  const Json json = withGemmaDefaults(given, 256000, 8192);
  ModelConfig config = readGemma(json, source);
  config.architecture = "Gemma2ForCausalLM";
  readRotary(json, source, PartialRotary::kRefused, config);
  readSoftcap(json, kScoreCap, 50.0, config);
  readSoftcap(json, kLogitCap, 30.0, config);
  config.finalize(source);
  readGemmaWindow(json, source, [](int32_t layer) { return layer % 2 == 0; }, config);
  return config;
}

// Layers without a window have rope_theta and rope_scaling; layers with one have rope_local_base_freq and no scaling.
// transformers 5 writes both in rope_parameters, by the type of the layer.
void readGemma3Rotary(Json json, std::string_view source, ModelConfig& config) {
  ModelConfig local;
  local.rotary_base = jsonGetOr(json, kLocalBase, 10000.0, source);
  config.rotary_base = 1e6;
  Json types = json.value("rope_parameters", Json());
  if (types.is_null()) types = Json::object();
  if (!types.is_object()) fail(ErrorCode::kInvalidArgument, "{}: 'rope_parameters' must be an object or null", source);
  const auto take = [&](const char* type) {
    const Json parameters = types.value(type, Json());
    types.erase(type);
    return parameters;
  };
  json["rope_parameters"] = take("full_attention");
  const Json sliding = {{"rope_parameters", take("sliding_attention")}};
  if (!types.empty()) {
    fail(ErrorCode::kUnsupported, "{}: rope_parameters must have only 'full_attention' and 'sliding_attention'",
         source);
  }
  readRotary(json, source, PartialRotary::kRefused, config);
  readRotary(sliding, source, PartialRotary::kRefused, local);
  if (local.rotary_scaling.type != RopeScalingType::kNone) {
    fail(ErrorCode::kUnsupported, "{}: rope_parameters: RoPE scaling of 'sliding_attention' is not supported", source);
  }
  config.extra[kLocalBase] = local.rotary_base;
}

ModelConfig gemma3Config(const Json& given, std::string_view source) {
  SourceKeys keys = gemmaKeys();
  keys.used.emplace_back(kLocalBase);
  addWindowPatternKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withGemmaDefaults(given, 262208, 131072);
  ModelConfig config = readGemma(json, source);
  config.architecture = "Gemma3ForCausalLM";
  config.qk_layernorm = true;
  readGemma3Rotary(json, source, config);
  // transformers has attn_logit_softcapping among Gemma 3's keys, but its attention does not apply it.
  readSoftcap(json, kLogitCap, nullptr, config);
  config.finalize(source);
  readGemmaWindow(json, source, slidingByPattern(json, 6, source), config);
  return config;
}

WeightTable gemmaTable(const ModelConfig& c, ResidualForm residual, QkNorm qk_norm, TorchtuneRows torchtune) {
  return llamaTable(c, {.qkv_bias = c.attn_bias,
                        .dense_bias = c.attn_bias,
                        .qk_norm = qk_norm,
                        .residual = residual,
                        .norms = {.add = 1.0f},
                        .torchtune_rows = torchtune});
}
WeightTable gemma1Table(const ModelConfig& config) {
  return gemmaTable(config, ResidualForm::kPre, QkNorm::kNone, TorchtuneRows::kPairs);
}
WeightTable gemma2Table(const ModelConfig& config) {
  return gemmaTable(config, ResidualForm::kSandwich, QkNorm::kNone, TorchtuneRows::kPairs);
}
WeightTable gemma3Table(const ModelConfig& config) {
  return gemmaTable(config, ResidualForm::kSandwich, QkNorm::kPerHead, TorchtuneRows::kUnknown);
}

float roundedTo(DType dtype, float value) {
  std::byte rounded[sizeof(value)];
  convertElements(&value, DType::kFloat32, rounded, dtype, 1);
  return loadAsFloat(rounded, dtype, 0);
}

ModelSpec gemmaSpec(const ModelConfig& config, ResidualForm residual, QkNorm qk_norm) {
  LayerSpec layer = layerSpec(config);
  layer.residual = residual;
  layer.attention.qk_norm = qk_norm;
  ModelSpec spec = modelSpec(config, layer);
  // transformers rounds the factor to the type of the weights.
  spec.embedding.scale = roundedTo(config.dtype, std::sqrt(static_cast<float>(config.hidden_size)));
  return spec;
}
ModelSpec gemma1Spec(const ModelConfig& config) { return gemmaSpec(config, ResidualForm::kPre, QkNorm::kNone); }
ModelSpec gemma2Spec(const ModelConfig& config) { return gemmaSpec(config, ResidualForm::kSandwich, QkNorm::kNone); }
ModelSpec gemma3Spec(const ModelConfig& config) { return gemmaSpec(config, ResidualForm::kSandwich, QkNorm::kPerHead); }

std::vector<FieldValues> gemma1Fields() {
  std::vector<FieldValues> fields = llamaFields();
  fields.push_back({"attn_bias", {true}});
  return fields;
}

std::vector<FieldValues> gemmaFields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  fields.push_back({"attn_bias", {true}});
  fields.push_back({kNormsAfter, {true}});
  for (const char* field : {kScoreScalar, kLogitCap}) fields.push_back({.field = field, .range = FieldRange::kFactor});
  return fields;
}
std::vector<FieldValues> gemma2Fields() {
  std::vector<FieldValues> fields = gemmaFields();
  fields.push_back({.field = kScoreCap, .range = FieldRange::kFactor});
  return fields;
}
std::vector<FieldValues> gemma3Fields() {
  std::vector<FieldValues> fields = gemmaFields();
  fields.push_back({.field = kLocalBase, .range = FieldRange::kFactor});
  fields.push_back({"qk_layernorm", {true}});
  return fields;
}
}  // namespace

Architecture gemmaArchitecture() {
  return {.name = "GemmaForCausalLM",
          .configFromHuggingFace = gemma1Config,
          .weightTable = gemma1Table,
          .modelSpec = gemma1Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = gemma1Fields(),
          .models = {"Gemma 1", "CodeGemma"},
          .structure =
              "Llama with a scaled embedding, norms that multiply by one plus their weight, a gated MLP with gelu"};
}

Architecture gemma2Architecture() {
  return {.name = "Gemma2ForCausalLM",
          .configFromHuggingFace = gemma2Config,
          .weightTable = gemma2Table,
          .modelSpec = gemma2Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = gemma2Fields(),
          .models = {"Gemma 2"},
          .structure =
              "norms before and after each block, soft caps of scores and logits, a sliding window in every second "
              "layer, scaled embedding"};
}

Architecture gemma3Architecture() {
  return {.name = "Gemma3ForCausalLM",
          .configFromHuggingFace = gemma3Config,
          .weightTable = gemma3Table,
          .modelSpec = gemma3Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = gemma3Fields(),
          .models = {"Gemma 3 (text)"},
          .structure =
              "Gemma 2 with norms of query and key heads instead of the cap of scores; layers with a window have a "
              "RoPE base of their own"};
}

}  // namespace chorus
