#include "models/model_spec.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace chorus {
namespace {

constexpr std::pair<std::string_view, Activation> kActivations[] = {{"silu", Activation::kSilu},
                                                                    {"gelu", Activation::kGelu},
                                                                    {"gelu_new", Activation::kGeluTanh},
                                                                    {"gelu_fast", Activation::kGeluTanh},
                                                                    {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                                    {"relu", Activation::kRelu}};

RopeSpec ropeSpec(const ModelConfig& config) {
  const bool pairs = config.position_embedding_type == PositionEmbedding::kRopeGptj;
  if (!pairs && config.position_embedding_type != PositionEmbedding::kRopeGptNeox) return {};
  return {.kind = pairs ? RopeKind::kGptj : RopeKind::kNeox,
          .dims = config.rotary_embedding_dim,
          .base = config.rotary_base,
          .scaling = config.rotary_scaling};
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

LayerSpec layerSpec(const ModelConfig& config) {
  const float scale = 1.0f / (static_cast<float>(config.q_scaling) * std::sqrt(static_cast<float>(config.head_size)));
  return {.attention = {.heads = {.queries = config.num_attention_heads,
                                  .kv = config.num_key_value_heads,
                                  .size = config.head_size},
                        .rope = ropeSpec(config),
                        .scale = scale},
          .mlp = {.kind = MlpKind::kGated,
                  .activation = activationNamed(config.hidden_act),
                  .intermediate_size = config.intermediate_size},
          .residual = ResidualForm::kPre};
}

ModelSpec modelSpec(const ModelConfig& config, const LayerSpec& layer) {
  return {.hidden_size = config.hidden_size,
          .embedding = {.width = config.embedding_size},
          .norm = {.kind = NormKind::kRms, .epsilon = static_cast<float>(config.norm_epsilon)},
          .layers = std::vector<LayerSpec>(static_cast<size_t>(config.num_hidden_layers), layer)};
}

ModelSpec rankSpec(ModelSpec spec, const Mapping& mapping, int32_t rank) {
  const LayerRange range = stageLayers(static_cast<int32_t>(spec.layers.size()), mapping, mapping.ppRank(rank));
  spec.layers = {spec.layers.begin() + range.begin, spec.layers.begin() + range.end};
  for (LayerSpec& layer : spec.layers) {
    layer.attention.heads.queries /= mapping.tp_size;
    layer.attention.heads.kv = std::max(1, layer.attention.heads.kv / mapping.tp_size);
    layer.mlp.intermediate_size /= mapping.tp_size;
  }
  return spec;
}

}  // namespace chorus
