// Sliding windows: which layers attend only to the last positions, in source configs and in checkpoints.
//
// A checkpoint has
//   sliding_window           positions that a query attends to, with its own
//   layer_types              for each layer "sliding_attention" or "full_attention", as in transformers; or
//   sliding_window_pattern   n: every nth layer attends to everything (TensorRT-LLM's field of Gemma 3; some of its
//                            versions write _sliding_window_pattern)
// Without the last two, all layers have the window. With both, layer_types counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "models/architecture.h"
#include "models/source_config.h"

namespace chorus {

// The values that keys of a source's config have if they are missing.
struct WindowDefaults {
  std::optional<int64_t> window;  // without sliding_window
  bool may_be_null = true;        // false: a sliding_window of null is refused
  std::function<bool(int32_t layer)> slides = [](int32_t) { return true; };  // without layer_types
};
// Reads sliding_window (null: no layer has one, unless null is refused) and layer_types into the fields of a finalised
// config. Throws Error if a value is malformed. addWindowKeys() adds the keys that it reads to `keys`.
void readSlidingWindow(const Json& json, std::string_view source, const WindowDefaults& defaults, ModelConfig& config);
void addWindowKeys(SourceKeys& keys);
// Reads the window of a model whose layers all have it or none: transformers ignores layer_types in its config.
// otherwise: the window if sliding_window is missing.
void readUniformWindow(const Json& json, std::string_view source, std::optional<int64_t> otherwise,
                       ModelConfig& config);
void addUniformWindowKeys(SourceKeys& keys);
// WindowDefaults::slides by sliding_window_pattern n, with `otherwise` for a missing one: every nth layer has no
// window.
std::function<bool(int32_t layer)> slidingByPattern(const Json& json, int32_t otherwise, std::string_view source);
void addWindowPatternKeys(SourceKeys& keys);
// readSlidingWindow() for Qwen2 and Qwen3, in which a layer without layer_types has the window if use_sliding_window is
// true and at least max_window_layers layers are before it.
void readQwenWindow(const Json& json, std::string_view source, ModelConfig& config);
void addQwenWindowKeys(SourceKeys& keys);

// The window of each layer of a checkpoint; 0: none. Throws Error if a field is malformed, or if layers have windows
// but there is no sliding_window.
std::vector<int64_t> layerWindows(const ModelConfig& config);
// Adds the fields to Architecture::fields.
void addWindowFields(std::vector<FieldValues>& fields);

}  // namespace chorus
