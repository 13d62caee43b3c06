#include "lora/peft_config.h"

#include <cmath>

#include "base/error.h"
#include "lora/peft_fields.h"

namespace chorus {
namespace {

constexpr size_t kMaxPatterns = 4096;

// Some initialisations subtract the adapter's first value from the base weights or replace them, so the adapter is
// right only on the changed base model.
void checkInitialisation(const Json& json, std::string_view source) {
  const auto it = json.find("init_lora_weights");
  if (it == json.end() || !it->is_string()) return;
  const auto name = it->get<std::string>();
  for (const std::string_view harmless : {"gaussian", "eva", "orthogonal", "mica"}) {
    if (name == harmless) return;
  }
  for (const std::string_view changing : {"pissa", "olora", "corda", "lora_ga"}) {
    if (name.starts_with(changing)) {
      fail(ErrorCode::kUnsupported,
           "{}: 'init_lora_weights' {} changes the base weights; save the adapter with "
           "path_initial_model_for_weight_conversion to make it a plain LoRA",
           source, name);
    }
  }
  fail(ErrorCode::kUnsupported, "{}: 'init_lora_weights' {} is not supported: it {} the base weights", source, name,
       name == "loftq" ? "replaces" : "may change");
}

int64_t readRank(const Json& value, std::string_view field, std::string_view source) {
  if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > INT32_MAX) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a rank of at least 1", source, field);
  }
  return value.get<int64_t>();
}

double readAlpha(const Json& value, std::string_view field, std::string_view source) {
  if (!value.is_number()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a number", source, field);
  return value.get<double>();
}

template <typename T, typename Read>
std::vector<std::pair<ModulePattern, T>> readPatterns(const OrderedJson& json, const char* field,
                                                      std::string_view source, Read read) {
  std::vector<std::pair<ModulePattern, T>> patterns;
  const auto it = json.find(field);
  if (it == json.end() || it->is_null()) return patterns;
  if (!it->is_object() || it->size() > kMaxPatterns) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be an object of at most {} patterns", source, field, kMaxPatterns);
  }
  const std::string where = fmt::format("{}: {}", source, field);
  for (const auto& [pattern, value] : it->items()) {
    patterns.emplace_back(ModulePattern::ofNameEnd(pattern, where), read(Json(value), pattern, where));
  }
  return patterns;
}

template <typename T>
T firstMatch(const std::vector<std::pair<ModulePattern, T>>& patterns, std::string_view module, T fallback) {
  for (const auto& [pattern, value] : patterns) {
    if (pattern.matches(module)) return value;
  }
  return fallback;
}
}  // namespace

PeftConfig PeftConfig::parse(std::string_view text, std::string_view source) {
  const JsonLimits limits{.max_bytes = kMaxPeftConfigBytes, .max_depth = 16};
  // Of two patterns that match a module the first in the file counts.
  const OrderedJson ordered = parseOrderedJson(text, source, limits);
  const Json json = parseJson(text, source, limits);
  if (!json.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a JSON object", source);
  const auto type = jsonGet<std::string>(json, "peft_type", source);
  if (type != "LORA") fail(ErrorCode::kUnsupported, "{}: 'peft_type' {} is not supported; LORA is", source, type);
  checkPeftFields(json, source);
  checkInitialisation(json, source);

  PeftConfig config;
  config.r = readRank(json.contains("r") ? json["r"] : Json(8), "r", source);
  config.lora_alpha = readAlpha(json.contains("lora_alpha") ? json["lora_alpha"] : Json(8), "lora_alpha", source);
  config.use_rslora = jsonGetOr(json, "use_rslora", false, source);
  config.use_dora = jsonGetOr(json, "use_dora", false, source);
  config.rank_pattern = readPatterns<int64_t>(ordered, "rank_pattern", source, readRank);
  config.alpha_pattern = readPatterns<double>(ordered, "alpha_pattern", source, readAlpha);
  config.modules = ModuleChoice::parse(json, source);
  return config;
}

int64_t PeftConfig::rankOf(std::string_view module) const { return firstMatch(rank_pattern, module, r); }

float PeftConfig::scaleOf(std::string_view module) const {
  const double alpha = firstMatch(alpha_pattern, module, lora_alpha);
  const auto rank = static_cast<double>(rankOf(module));
  return static_cast<float>(use_rslora ? alpha / std::sqrt(rank) : alpha / rank);
}

}  // namespace chorus
