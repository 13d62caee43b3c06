#include "lora/peft_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

constexpr size_t kMaxPatterns = 4096;

constexpr std::string_view kUsed[] = {"peft_type",    "r",             "lora_alpha",     "use_rslora",       "use_dora",
                                      "rank_pattern", "alpha_pattern", "target_modules", "init_lora_weights"};

// Provenance, training, initialisation, and the choice of modules, which the tensors themselves show.
constexpr std::string_view kInert[] = {
    "auto_mapping",        "base_model_name_or_path", "revision",         "task_type",       "inference_mode",
    "peft_version",        "lora_dropout",            "layers_to_transform", "layers_pattern", "exclude_modules",
    "loftq_config",        "eva_config",              "corda_config",     "lora_ga_config",  "velora_config",
    "megatron_core",       "qalora_group_size",       "ensure_weight_tying", "runtime_config"};

const std::map<std::string, Json, std::less<>>& onlyAtDefault() {
  static const std::map<std::string, Json, std::less<>> fields = {{"bias", "none"},
                                                                  {"fan_in_fan_out", false},
                                                                  {"lora_bias", false},
                                                                  {"modules_to_save", nullptr},
                                                                  {"layer_replication", nullptr},
                                                                  {"megatron_config", nullptr},
                                                                  {"target_parameters", nullptr},
                                                                  {"trainable_token_indices", nullptr},
                                                                  {"alora_invocation_tokens", nullptr},
                                                                  {"arrow_config", nullptr},
                                                                  {"kasa_config", nullptr},
                                                                  {"monteclora_config", nullptr},
                                                                  {"use_bdlora", nullptr},
                                                                  {"use_qalora", false}};
  return fields;
}

// Ways to leave a field out: null, false, [] and {}.
bool saysNothing(const Json& value) {
  return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty());
}

void checkFields(const Json& json, std::string_view source) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json.items()) {
    const auto only = onlyAtDefault().find(key);
    if (only != onlyAtDefault().end()) {
      if (value != only->second && !saysNothing(value)) {
        fail(ErrorCode::kUnsupported, "{}: '{}' is supported only at its default {}", source, key, only->second.dump());
      }
      continue;
    }
    const bool listed = std::find(std::begin(kUsed), std::end(kUsed), key) != std::end(kUsed) ||
                        std::find(std::begin(kInert), std::end(kInert), key) != std::end(kInert);
    if (!listed && !saysNothing(value)) unknown.push_back(key);
  }
  if (!unknown.empty()) log::warn("{}: unknown fields are not used: {}", source, listSome(unknown));
}

// These initialisations subtract the adapter's first value from the base weights, so the adapter is right only on
// the changed base model.
void checkInitialisation(const Json& json, std::string_view source) {
  const auto it = json.find("init_lora_weights");
  if (it == json.end() || !it->is_string()) return;
  const auto name = it->get<std::string>();
  for (const std::string_view changing : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
    if (name.starts_with(changing)) {
      fail(ErrorCode::kUnsupported,
           "{}: 'init_lora_weights' {} changes the base weights; save the adapter with "
           "path_initial_model_for_weight_conversion to make it a plain LoRA",
           source, name);
    }
  }
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
void readTargets(const Json& json, std::string_view source, PeftConfig& config) {
  const auto targets = json.find("target_modules");
  if (targets == json.end() || targets->is_null()) return;
  if (targets->is_string()) {
    auto pattern = targets->get<std::string>();
    std::string lower = pattern;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "all-linear") return;
    config.target_pattern = ModulePattern::ofWholeName(pattern, fmt::format("{}: target_modules", source));
    return;
  }
  if (!targets->is_array()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'target_modules' must be a list of names or a pattern", source);
  }
  for (const Json& target : *targets) {
    if (!target.is_string()) fail(ErrorCode::kInvalidArgument, "{}: 'target_modules' must hold names", source);
    config.target_modules.push_back(target.get<std::string>());
  }
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
  checkFields(json, source);
  checkInitialisation(json, source);

  PeftConfig config;
  config.r = readRank(json.contains("r") ? json["r"] : Json(8), "r", source);
  config.lora_alpha = readAlpha(json.contains("lora_alpha") ? json["lora_alpha"] : Json(8), "lora_alpha", source);
  config.use_rslora = jsonGetOr(json, "use_rslora", false, source);
  config.use_dora = jsonGetOr(json, "use_dora", false, source);
  config.rank_pattern = readPatterns<int64_t>(ordered, "rank_pattern", source, readRank);
  config.alpha_pattern = readPatterns<double>(ordered, "alpha_pattern", source, readAlpha);
  readTargets(json, source, config);
  return config;
}

int64_t PeftConfig::rankOf(std::string_view module) const { return firstMatch(rank_pattern, module, r); }

float PeftConfig::scaleOf(std::string_view module) const {
  const double alpha = firstMatch(alpha_pattern, module, lora_alpha);
  const auto rank = static_cast<double>(rankOf(module));
  return static_cast<float>(use_rslora ? alpha / std::sqrt(rank) : alpha / rank);
}

bool PeftConfig::targets(std::string_view module) const {
  if (target_pattern) return target_pattern->matches(module);
  if (target_modules.empty()) return true;
  return std::any_of(target_modules.begin(), target_modules.end(), [&](const std::string& target) {
    if (module == target) return true;
    return module.size() > target.size() && module.ends_with(target) && module[module.size() - target.size() - 1] == '.';
  });
}

}  // namespace chorus
