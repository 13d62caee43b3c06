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
constexpr const char* kPatterns[] = {"sliding_window_pattern", "_sliding_window_pattern"};
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

[[noreturn]] void failWithoutWindow(const char* key, std::string_view source) {
  fail(ErrorCode::kInvalidArgument, "{}: '{}' gives layers a window, but there is no '{}'", source, key, kWindow);
}

// Returns for each layer whether it has the window.
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
  if (!defaults.may_be_null && json.contains(kWindow) && !has(json, kWindow)) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a number, not null", source, kWindow);
  }
  std::vector<bool> slides;
  if (has(json, kLayerTypes)) {
    slides = slidingLayers(json[kLayerTypes], config.num_hidden_layers, source);
  } else {
    for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) slides.push_back(defaults.slides(layer));
  }
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) return;
  if (json.contains(kWindow) ? !has(json, kWindow) : !defaults.window) {
    if (has(json, kLayerTypes)) failWithoutWindow(kLayerTypes, source);
    return;
  }
  config.extra[kWindow] = json.contains(kWindow) ? positive(json, kWindow, source) : *defaults.window;
  if (std::find(slides.begin(), slides.end(), false) == slides.end()) return;
  Json types = Json::array();
  for (const bool slide : slides) types.push_back(slide ? kSliding : kFull);
  config.extra[kLayerTypes] = std::move(types);
}

void readUniformWindow(const Json& json, std::string_view source, std::optional<int64_t> otherwise,
                       ModelConfig& config) {
  const auto window = json.find(kWindow);
  const Json own = window == json.end() ? Json::object() : Json{{kWindow, *window}};
  readSlidingWindow(own, source, {.window = otherwise}, config);
}

void addUniformWindowKeys(SourceKeys& keys) {
  keys.used.emplace_back(kWindow);
  keys.inert.emplace_back(kLayerTypes);
}

void addWindowKeys(SourceKeys& keys) { keys.used.insert(keys.used.end(), {kWindow, kLayerTypes}); }

std::function<bool(int32_t layer)> slidingByPattern(const Json& json, int32_t otherwise, std::string_view source) {
  const auto pattern = jsonGetOr<int32_t>(json, kPatterns[0], otherwise, source);
  if (pattern < 1) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be at least 1", source, kPatterns[0]);
  return [=](int32_t layer) { return (layer + 1) % pattern != 0; };
}

void addWindowPatternKeys(SourceKeys& keys) {
  keys.used.emplace_back(kPatterns[0]);
  // transformers writes it beside layer_types and does not read it.
  keys.inert.emplace_back(kPatterns[1]);
}

void readQwenWindow(const Json& json, std::string_view source, ModelConfig& config) {
  const bool used = jsonGetOr(json, "use_sliding_window", false, source);
  const auto full_layers = jsonGetOr<int32_t>(json, "max_window_layers", kQwenFullLayers, source);
  readSlidingWindow(json, source,
                    {.window = kQwenWindow, .slides = [=](int32_t layer) { return used && layer >= full_layers; }},
                    config);
}

void addQwenWindowKeys(SourceKeys& keys) {
  addWindowKeys(keys);
  keys.used.insert(keys.used.end(), {"use_sliding_window", "max_window_layers"});
}

std::vector<int64_t> layerWindows(const ModelConfig& config) {
  const Json& fields = config.extra;
  const int64_t window = has(fields, kWindow) ? positive(fields, kWindow, kCheckpoint) : 0;
  std::vector<bool> slides(static_cast<size_t>(config.num_hidden_layers), window > 0);
  const char* decides = nullptr;  // the field that says which layers slide
  for (const char* key : kPatterns) {
    if (!has(fields, key)) continue;
    decides = key;
    const int64_t pattern = positive(fields, key, kCheckpoint);
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = (static_cast<int64_t>(i) + 1) % pattern != 0;
  }
  if (has(fields, kLayerTypes)) {
    decides = kLayerTypes;
    slides = slidingLayers(fields[kLayerTypes], config.num_hidden_layers, kCheckpoint);
  }
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && window == 0) failWithoutWindow(decides, kCheckpoint);
  std::vector<int64_t> windows;
  for (const bool slide : slides) windows.push_back(slide ? window : 0);
  return windows;
}

void addWindowFields(std::vector<FieldValues>& fields) {
  fields.push_back({.field = kWindow, .range = FieldRange::kSize});
  fields.push_back({.field = kLayerTypes, .range = FieldRange::kList});
  for (const char* key : kPatterns) fields.push_back({.field = key, .range = FieldRange::kSize});
}

}  // namespace chorus
