#include "models/qwen2.h"

#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "models/llama_blocks.h"

namespace chorus {
namespace {

// transformers' values for a config without these keys.
constexpr int32_t kDefaultMaxWindowLayers = 28;
constexpr int64_t kDefaultWindow = 4096;
constexpr size_t kShownType = 100;  // bytes

// layer_types names the attention of each layer. Without it, a layer has a window if use_sliding_window is true and at
// least max_window_layers layers are before it. sliding_window is the window's size, and null means no window.
void refuseWindows(const Json& json, const ModelConfig& config, std::string_view source) {
  const auto windowed = jsonGetOr(json, "use_sliding_window", false, source);
  const auto full_layers = jsonGetOr<int32_t>(json, "max_window_layers", kDefaultMaxWindowLayers, source);
  const auto window = json.find("sliding_window");
  const auto types = json.find("layer_types");
  if (types != json.end() && !types->is_null()) {
    if (!types->is_array()) fail(ErrorCode::kInvalidArgument, "{}: 'layer_types' must be a list", source);
    for (const Json& type : *types) {
      if (type == "full_attention") continue;
      fail(ErrorCode::kUnsupported, "{}: 'layer_types' has {}; only \"full_attention\" is supported", source,
           printable(type.dump(), kShownType));
    }
  } else if (windowed && full_layers < config.num_hidden_layers && (window == json.end() || !window->is_null())) {
    refuseSlidingWindow(jsonGetOr(json, "sliding_window", kDefaultWindow, source), config, source);
  }
}

ModelConfig qwen2Config(const Json& json, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.insert(keys.used.end(), {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"});
  keys.only_at_default.emplace_back("use_mrope", false);
  checkSourceKeys(json, keys, source);
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "Qwen2ForCausalLM";
  config.attn_bias = true;
  refuseWindows(json, config, source);
  config.finalize(source);
  return config;
}

// q, k and v always have biases, because TensorRT-LLM takes a Qwen2 checkpoint without attn_bias to have them.
WeightTable qwen2Table(const ModelConfig& config) { return llamaTable(config, {.qkv = true}); }

std::vector<FieldValues> qwen2Fields() {
  std::vector<FieldValues> fields = llamaFields();
  fields.push_back({"attn_bias", {true}});
  return fields;
}
}  // namespace

Architecture qwen2Architecture() {
  return {.name = "Qwen2ForCausalLM",
          .configFromHuggingFace = qwen2Config,
          .weightTable = qwen2Table,
          .modelSpec = llamaSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = qwen2Fields()};
}

}  // namespace chorus
