// Sliding windows: which layers attend only to the last positions, in source configs and in checkpoints.
//
// A checkpoint has
//   sliding_window           positions that a query attends to, with its own
//   layer_types              for each layer "sliding_attention" or "full_attention", as in transformers; or
//   sliding_window_pattern   n: every nth layer attends to everything (TensorRT-LLM's field of Gemma 3)
// Without the last two, all layers have the window.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "models/architecture.h"

namespace chorus {

// What a source config says if its keys are missing.
struct WindowDefaults {
  std::optional<int64_t> window;                                             // without sliding_window
  std::function<bool(int32_t layer)> slides = [](int32_t) { return true; };  // without layer_types
};
// Reads sliding_window (null: no layer has one) and layer_types into the checkpoint's fields. num_hidden_layers is set
// already. windowKeys() are the keys that it reads, for SourceKeys::used. Throws Error if a value is malformed.
void readSlidingWindow(const Json& json, std::string_view source, const WindowDefaults& defaults, ModelConfig& config);
std::vector<std::string_view> windowKeys();
// The same for Qwen2 and Qwen3, in which a layer without layer_types has the window if use_sliding_window is true and
// at least max_window_layers layers are before it.
void readQwenWindow(const Json& json, std::string_view source, ModelConfig& config);
std::vector<std::string_view> qwenWindowKeys();

// The window of each layer of a checkpoint; 0: none. Throws Error(kInvalidArgument) if a field is malformed.
std::vector<int64_t> layerWindows(const ModelConfig& config);
// For Architecture::fields.
std::vector<FieldValues> windowFields();

}  // namespace chorus
