#include "models/model_spec.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "models/architecture.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

constexpr std::pair<std::string_view, Activation> kActivations[] = {{"silu", Activation::kSilu},
                                                                    {"gelu", Activation::kGelu},
                                                                    {"gelu_new", Activation::kGeluTanh},
                                                                    {"gelu_fast", Activation::kGeluTanh},
                                                                    {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                                    {"relu", Activation::kRelu},
                                                                    {"relu2", Activation::kReluSquared},
                                                                    {kSquaredRelu, Activation::kReluSquared}};

RopeSpec ropeSpec(const ModelConfig& config) {
  const bool pairs = config.position_embedding_type == PositionEmbedding::kRopeGptj;
  if (!pairs && config.position_embedding_type != PositionEmbedding::kRopeGptNeox) return {};
  return {.kind = pairs ? RopeKind::kGptj : RopeKind::kNeox,
          .dims = config.rotary_embedding_dim,
          .base = config.rotary_base,
          .scaling = config.rotary_scaling};
}

// A positive number in a field of the checkpoint; `otherwise` without the field.
double positiveField(const ModelConfig& config, const char* field, double otherwise) {
  const auto found = config.extra.find(field);
  if (found == config.extra.end() || found->is_null()) return otherwise;
  const auto value = jsonGet<double>(config.extra, field, "config.json");
  if (!isFactor(value)) {
    fail(ErrorCode::kInvalidArgument, "config.json: '{}' must be from {:g} to {:g}, not {:g}", field, kLeastFactor,
         kGreatestFactor, value);
  }
  return value;
}
float softcap(const ModelConfig& config, const char* field) {
  return static_cast<float>(positiveField(config, field, 0));
}

// The slopes of alibi_with_scale are multiplied like the products of queries and keys.
AlibiSpec alibiSpec(const ModelConfig& config, float scale) {
  const bool scaled = config.position_embedding_type == PositionEmbedding::kAlibiWithScale;
  if (!scaled && config.position_embedding_type != PositionEmbedding::kAlibi) return {};
  return {.heads = config.num_attention_heads,
          .first = 0,
          .count = config.num_attention_heads,
          .scale = scaled ? scale : 1.0f};
}
}  // namespace

Activation activationNamed(std::string_view hidden_act) {
  for (const auto& [name, activation] : kActivations) {
    if (name == hidden_act) return activation;
  }
  fail(ErrorCode::kUnsupported, "hidden_act '{}' is not supported", hidden_act);
}

std::vector<Json> activationNames() {
  std::vector<Json> names;
  for (const auto& entry : kActivations) names.emplace_back(std::string(entry.first));
  return names;
}

std::vector<float> alibiSlopes(int32_t heads) {
  int32_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<float> slopes;
  for (int32_t i = 0; i < heads; ++i) {
    const double exponent = i < power ? i + 1.0 : (2.0 * (i - power) + 1) / 2;
    slopes.push_back(static_cast<float>(std::exp2(-8.0 / power * exponent)));
  }
  return slopes;
}

std::vector<float> alibiSlopes(const AlibiSpec& spec) {
  const std::vector<float> all = alibiSlopes(spec.heads);
  std::vector<float> slopes(all.begin() + spec.first, all.begin() + spec.first + spec.count);
  for (float& slope : slopes) slope *= spec.scale;
  return slopes;
}

LayerSpec layerSpec(const ModelConfig& config) {
  const double divisor = positiveField(config, "query_pre_attn_scalar", static_cast<double>(config.head_size));
  const float scale = 1.0f / (static_cast<float>(config.q_scaling) * std::sqrt(static_cast<float>(divisor)));
  return {.attention = {.heads = {.queries = config.num_attention_heads,
                                  .kv = config.num_key_value_heads,
                                  .size = config.head_size},
                        .rope = ropeSpec(config),
                        .scale = scale,
                        .softcap = softcap(config, "attn_logit_softcapping"),
                        .alibi = alibiSpec(config, scale)},
          .mlp = {.kind = MlpKind::kGated,
                  .activation = activationNamed(config.hidden_act),
                  .intermediate_size = config.intermediate_size},
          .residual = ResidualForm::kPre};
}

ModelSpec modelSpec(const ModelConfig& config, const LayerSpec& layer) {
  ModelSpec spec = {.hidden_size = config.hidden_size,
                    .embedding = {.width = config.embedding_size},
                    .norm = {.kind = NormKind::kRms, .epsilon = static_cast<float>(config.norm_epsilon)},
                    .layers = std::vector<LayerSpec>(static_cast<size_t>(config.num_hidden_layers), layer),
                    .head = {.softcap = softcap(config, "final_logit_softcapping")}};
  const std::vector<int64_t> windows = layerWindows(config);
  const double local_base = positiveField(config, "rope_local_base_freq", 0);
  for (size_t i = 0; i < windows.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    attention.window = windows[i];
    if (windows[i] == 0 || local_base == 0) continue;
    attention.rope.base = local_base;
    attention.rope.scaling = {};
  }
  return spec;
}

void limitWindows(std::span<const int32_t> windows, ModelSpec& spec) {
  if (windows.empty()) return;
  if (windows.size() > spec.layers.size()) {
    fail(ErrorCode::kInvalidArgument, "{} attention windows are given for {} layers", windows.size(),
         spec.layers.size());
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    int64_t& window = spec.layers[i].attention.window;
    const int64_t limit = windows[i % windows.size()];
    assert(limit > 0);
    window = window == 0 ? limit : std::min(window, limit);
  }
}

ModelSpec rankSpec(ModelSpec spec, const Mapping& mapping, int32_t rank) {
  const LayerRange range = stageLayers(static_cast<int32_t>(spec.layers.size()), mapping, mapping.ppRank(rank));
  spec.layers = {spec.layers.begin() + range.begin, spec.layers.begin() + range.end};
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = layer.attention;
    attention.all_heads = attention.heads;
    attention.first_query = attention.heads.queries / mapping.tp_size * mapping.tpRank(rank);
    attention.first_kv = attention.heads.kv * mapping.tpRank(rank) / mapping.tp_size;
    layer.attention.heads.queries /= mapping.tp_size;
    if (attention.alibi.heads > 0) {
      attention.alibi.first = attention.first_query;
      attention.alibi.count = attention.heads.queries;
    }
    layer.attention.heads.kv = std::max(1, layer.attention.heads.kv / mapping.tp_size);
    layer.mlp.intermediate_size /= mapping.tp_size;
    layer.mlp.shared_size /= mapping.tp_size;
  }
  return spec;
}

}  // namespace chorus
