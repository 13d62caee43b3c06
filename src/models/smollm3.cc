#include "models/smollm3.h"

#include <algorithm>

#include "base/error.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

// A key of the source and a field of a checkpoint: for each layer 1, or 0 if the layer has no RoPE. A checkpoint
// without it has RoPE in all layers.
constexpr const char* kRopeLayers = "no_rope_layers";
constexpr const char* kInterval = "no_rope_layer_interval";

// Returns for each layer whether it has RoPE. list: may have entries of more layers.
std::vector<bool> ropeLayers(const Json& list, int32_t num_layers, std::string_view source) {
  const auto malformed = [&] {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list with a 0 or 1 for each of the {} layers", source,
         kRopeLayers, num_layers);
  };
  if (!list.is_array() || std::ssize(list) < num_layers) malformed();
  std::vector<bool> layers;
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    const Json& entry = list[static_cast<size_t>(layer)];
    if (entry != 0 && entry != 1 && !entry.is_boolean()) malformed();
    layers.push_back(entry == 1 || entry == true);
  }
  return layers;
}

std::vector<bool> sourceRopeLayers(const Json& json, int32_t num_layers, std::string_view source) {
  const auto list = json.find(kRopeLayers);
  if (list != json.end() && !list->is_null()) return ropeLayers(*list, num_layers, source);
  const auto interval = jsonGetOr<int32_t>(json, kInterval, 4, source);
  if (interval < 1) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be at least 1", source, kInterval);
  std::vector<bool> layers;
  for (int32_t layer = 0; layer < num_layers; ++layer) layers.push_back((layer + 1) % interval != 0);
  return layers;
}

ModelConfig smollm3Config(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.insert(keys.used.end(), {"attention_bias", "mlp_bias", "use_sliding_window", kRopeLayers, kInterval});
  keys.inert = {"pretraining_tp", "max_window_layers"};
  addWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"num_key_value_heads", 4},
                                         {"max_position_embeddings", 32768},
                                         {"tie_word_embeddings", true},
                                         {"rope_theta", 2e6}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "SmolLM3ForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.mlp_bias = jsonGetOr(json, "mlp_bias", false, source);
  config.finalize(source);
  const std::vector<bool> rope = sourceRopeLayers(json, config.num_hidden_layers, source);
  if (std::ranges::find(rope, false) != rope.end()) {
    Json& list = config.extra[kRopeLayers] = Json::array();
    for (const bool has_rope : rope) list.push_back(has_rope ? 1 : 0);
  }
  // Without layer_types, the layers without RoPE have the window.
  const bool slides = jsonGetOr(json, "use_sliding_window", false, source);
  const auto slidesIn = [&](int32_t layer) { return slides && !rope[static_cast<size_t>(layer)]; };
  readSlidingWindow(json, source, {.window = std::nullopt, .slides = slidesIn}, config);
  return config;
}

WeightTable smollm3Table(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias, .dense_bias = c.attn_bias, .mlp_bias = c.mlp_bias});
}

ModelSpec smollm3Spec(const ModelConfig& config) {
  ModelSpec spec = llamaSpec(config);
  const auto list = config.extra.find(kRopeLayers);
  if (list == config.extra.end() || list->is_null()) return spec;
  const std::vector<bool> rope = ropeLayers(*list, config.num_hidden_layers, "config.json");
  for (size_t i = 0; i < rope.size(); ++i) {
    if (!rope[i]) spec.layers[i].attention.rope = {};
  }
  return spec;
}

std::vector<FieldValues> smollm3Fields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  fields.push_back({"attn_bias", {true}});
  fields.push_back({"mlp_bias", {true}});
  fields.push_back({.field = kRopeLayers, .range = FieldRange::kList});
  return fields;
}
}  // namespace

Architecture smollm3Architecture() {
  return {.name = "SmolLM3ForCausalLM",
          .configFromHuggingFace = smollm3Config,
          .weightTable = smollm3Table,
          .modelSpec = smollm3Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = smollm3Fields(),
          .models = {"SmolLM3"},
          .structure = "Llama with layers without RoPE, sliding windows in some layers"};
}

}  // namespace chorus
