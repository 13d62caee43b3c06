#include "models/sliding_window.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/printable.h"

namespace chorus {
namespace {

constexpr const char* kWindow = "sliding_window";
constexpr const char* kLayerTypes = "layer_types";
constexpr const char* kPattern = "sliding_window_pattern";
constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";
constexpr std::string_view kCheckpoint = "config.json";
// transformers' values for a Qwen config without these keys.
constexpr int32_t kQwenFullLayers = 28;
constexpr int64_t kQwenWindow = 4096;
constexpr size_t kShownType = 100;  // bytes

bool has(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

int64_t positive(const Json& json, const char* key, std::string_view source) {
  const auto value = jsonGet<int64_t>(json, key, source);
  if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be from 1 to 2147483647, not {}", source, key, value);
  }
  return value;
}

// For each layer, whether it has the window.
std::vector<bool> slidingLayers(const Json& types, int32_t num_layers, std::string_view source) {
  if (!types.is_array() || std::ssize(types) != num_layers) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a list with an entry for each of the {} layers", source,
         kLayerTypes, num_layers);
  }
  std::vector<bool> slides;
  for (const Json& type : types) {
    if (type != kSliding && type != kFull) {
      fail(ErrorCode::kUnsupported, "{}: '{}' has {}; supported are \"{}\" and \"{}\"", source, kLayerTypes,
           printable(type.dump(), kShownType), kFull, kSliding);
    }
    slides.push_back(type == kSliding);
  }
  return slides;
}
}  // namespace

void readSlidingWindow(const Json& json, std::string_view source, const WindowDefaults& defaults, ModelConfig& config) {
  std::vector<bool> slides;
  if (has(json, kLayerTypes)) {
    slides = slidingLayers(json[kLayerTypes], config.num_hidden_layers, source);
  } else {
    for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) slides.push_back(defaults.slides(layer));
  }
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) return;
  if (json.contains(kWindow) ? !has(json, kWindow) : !defaults.window) {
    if (!has(json, kLayerTypes)) return;
    fail(ErrorCode::kInvalidArgument, "{}: '{}' has \"{}\", but there is no '{}'", source, kLayerTypes, kSliding,
         kWindow);
  }
  config.extra[kWindow] = json.contains(kWindow) ? positive(json, kWindow, source) : *defaults.window;
  if (std::find(slides.begin(), slides.end(), false) == slides.end()) return;
  Json types = Json::array();
  for (const bool slide : slides) types.push_back(slide ? kSliding : kFull);
  config.extra[kLayerTypes] = std::move(types);
}

std::vector<std::string_view> windowKeys() { return {kWindow, kLayerTypes}; }

void readQwenWindow(const Json& json, std::string_view source, ModelConfig& config) {
  const bool used = jsonGetOr(json, "use_sliding_window", false, source);
  const auto full_layers = jsonGetOr<int32_t>(json, "max_window_layers", kQwenFullLayers, source);
  readSlidingWindow(json, source,
                    {.window = kQwenWindow, .slides = [=](int32_t layer) { return used && layer >= full_layers; }},
                    config);
}

std::vector<std::string_view> qwenWindowKeys() {
  std::vector<std::string_view> keys = windowKeys();
  keys.insert(keys.end(), {"use_sliding_window", "max_window_layers"});
  return keys;
}

std::vector<int64_t> layerWindows(const ModelConfig& config) {
  std::vector<int64_t> windows(static_cast<size_t>(config.num_hidden_layers), 0);
  if (!has(config.extra, kWindow)) return windows;
  const int64_t window = positive(config.extra, kWindow, kCheckpoint);
  std::vector<bool> slides(windows.size(), true);
  if (has(config.extra, kLayerTypes)) {
    slides = slidingLayers(config.extra[kLayerTypes], config.num_hidden_layers, kCheckpoint);
  } else if (has(config.extra, kPattern)) {
    const int64_t pattern = positive(config.extra, kPattern, kCheckpoint);
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = (static_cast<int64_t>(i) + 1) % pattern != 0;
  }
  for (size_t i = 0; i < windows.size(); ++i) windows[i] = slides[i] ? window : 0;
  return windows;
}

std::vector<FieldValues> windowFields() {
  return {{.field = kWindow, .range = FieldRange::kSize},
          {.field = kLayerTypes, .range = FieldRange::kList},
          {.field = kPattern, .range = FieldRange::kSize}};
}

}  // namespace chorus
