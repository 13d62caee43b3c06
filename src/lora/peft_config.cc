#include "lora/peft_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lora/ordered_items.h"
#include "lora/peft_fields.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxPatterns = 4096;
constexpr size_t kMaxTokens = size_t{1} << 16;
constexpr JsonLimits kLimits{.max_bytes = kMaxPeftConfigBytes, .max_depth = 16};

// Some initialisations subtract the adapter's initial values from the base weights or replace the base weights, so such
// an adapter is right only on the changed base model.
void checkInitialisation(const Json& json, std::string_view source) {
  const auto it = json.find("init_lora_weights");
  if (it == json.end() || !it->is_string()) return;
  const auto name = it->get<std::string>();
  const std::string lower = toLower(name);  // PEFT accepts some names in capitals too
  if (lower == "gaussian" || lower == "mica" || name == "eva" || name == "orthogonal") return;
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
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a whole number of at least 1", source, field);
  }
  return value.get<int64_t>();
}

double readAlpha(const Json& value, std::string_view field, std::string_view source) {
  if (!value.is_number()) fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a number", source, field);
  return value.get<double>();
}

template <typename T, typename Read>
std::vector<std::pair<ModulePattern, T>> readPatterns(std::string_view text, const char* field, std::string_view source,
                                                      const std::shared_ptr<PatternWork>& work, Read read) {
  std::vector<std::pair<ModulePattern, T>> patterns;
  const std::string where = fmt::format("{}: {}", source, field);
  for (const auto& [pattern, value] : orderedItems(text, field, kMaxPatterns, source, kLimits)) {
    patterns.emplace_back(ModulePattern::ofNameEnd(pattern, where, work), read(value, pattern, where));
  }
  return patterns;
}

[[noreturn]] void refuse(std::string_view source, std::string_view field, std::string_view reason) {
  fail(ErrorCode::kInvalidArgument, "{}: '{}' {}", source, field, reason);
}

PeftBias readBias(const Json& json, std::string_view source) {
  const auto name = jsonGetOr<std::string>(json, "bias", "none", source);
  if (name == "none") return PeftBias::kNone;
  if (name == "all") return PeftBias::kAll;
  if (name == "lora_only") return PeftBias::kLoraOnly;
  refuse(source, "bias", "must be none, all or lora_only");
}

std::vector<int64_t> readTokenList(const Json& value, std::string_view source) {
  constexpr std::string_view kField = "trainable_token_indices";
  if (!value.is_array() || value.size() > kMaxTokens) {
    refuse(source, kField,
           fmt::format("must be a list of at most {} token ids, or an object with such a list for each module",
                       kMaxTokens));
  }
  std::vector<int64_t> tokens;
  for (const Json& token : value) {
    if (!token.is_number_integer() || token.get<int64_t>() < 0 || token.get<int64_t>() > INT32_MAX) {
      refuse(source, kField, "must contain token ids, integers of at least 0");
    }
    tokens.push_back(token.get<int64_t>());
  }
  std::vector<int64_t> sorted = tokens;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) refuse(source, kField, "names a token twice");
  return tokens;
}

std::vector<PeftTokens> readTokens(const Json& json, std::string_view source) {
  std::vector<PeftTokens> all;
  const auto it = json.find("trainable_token_indices");
  if (it == json.end() || it->is_null()) return all;
  if (!it->is_object()) return {{std::nullopt, readTokenList(*it, source)}};
  if (it->size() > kMaxPatterns) refuse(source, "trainable_token_indices", "names too many modules");
  for (const auto& [module, tokens] : it->items()) all.push_back({module, readTokenList(tokens, source)});
  return all;
}

// Refuses the combinations of fields that PEFT refuses.
void checkCombinations(const Json& json, const PeftConfig& config, std::string_view source) {
  if (config.lora_bias && config.use_dora) refuse(source, "lora_bias", "cannot be combined with 'use_dora'");
  const auto initialisation = json.find("init_lora_weights");
  if (config.lora_bias && initialisation != json.end() && !initialisation->is_boolean()) {
    refuse(source, "lora_bias", "cannot be combined with a named 'init_lora_weights'");
  }
  if (!config.modules.targetsParameters()) return;
  for (const char* field : {"use_dora", "lora_bias", "fan_in_fan_out"}) {
    if (jsonGetOr(json, field, false, source))
      refuse(source, "target_parameters", fmt::format("cannot be combined with '{}'", field));
  }
  const auto dropout = json.find("lora_dropout");
  if (dropout != json.end() && dropout->is_number() && dropout->get<double>() != 0) {
    refuse(source, "target_parameters", "cannot be combined with 'lora_dropout'");
  }
}

template <typename T>
T firstMatch(const std::vector<std::pair<ModulePattern, T>>& patterns, std::string_view module,
             std::string_view spelling, T fallback) {
  const bool has_other = !spelling.empty() && spelling != module;
  for (const auto& [pattern, value] : patterns) {
    if (pattern.matches(module) || (has_other && pattern.matches(spelling))) return value;
  }
  return fallback;
}
}  // namespace

PeftConfig PeftConfig::parse(std::string_view text, std::string_view source) {
  Json json = parseJson(text, source, kLimits);
  if (!json.is_object()) fail(ErrorCode::kCorrupt, "{}: expected a JSON object", source);
  PeftConfig config;
  config.mlx = toPeftConfig(json, source);
  const auto type = jsonGet<std::string>(json, "peft_type", source);
  if (type != "LORA") fail(ErrorCode::kUnsupported, "{}: 'peft_type' {} is not supported; only LORA is", source, type);
  config.magnitude_is_normalised = jsonGetOr(json, kNormalisedField, false, source);
  json.erase(kNormalisedField);
  checkPeftFields(json, source);
  checkInitialisation(json, source);

  config.r = readRank(json.contains("r") ? json["r"] : Json(8), "r", source);
  config.lora_alpha = readAlpha(json.contains("lora_alpha") ? json["lora_alpha"] : Json(8), "lora_alpha", source);
  config.use_rslora = jsonGetOr(json, "use_rslora", false, source);
  config.use_dora = jsonGetOr(json, "use_dora", false, source);
  // When several patterns match a module, the first one in the file applies. mlx-lm has no patterns.
  const std::string_view patterns = config.mlx ? "{}" : text;
  config.work = std::make_shared<PatternWork>(source, text.size());
  config.rank_pattern = readPatterns<int64_t>(patterns, "rank_pattern", source, config.work, readRank);
  config.alpha_pattern = readPatterns<double>(patterns, "alpha_pattern", source, config.work, readAlpha);
  config.modules = ModuleChoice::parse(json, source, config.work);
  config.bias = readBias(json, source);
  config.lora_bias = jsonGetOr(json, "lora_bias", false, source);
  config.ensure_weight_tying = jsonGetOr(json, "ensure_weight_tying", false, source);
  config.trainable_tokens = readTokens(json, source);
  checkCombinations(json, config, source);
  if (config.mlx && config.mlx->replaces_weights) config.modules.saveAll();
  config.peft = std::move(json);
  return config;
}

int64_t PeftConfig::rankOf(std::string_view module, std::string_view spelling) const {
  if (work) work->ask();
  return firstMatch(rank_pattern, module, spelling, r);
}

float PeftConfig::scaleOf(std::string_view module, std::string_view spelling) const {
  if (work) work->ask();
  if (mlx) return static_cast<float>(mlx->scale);
  const double alpha = firstMatch(alpha_pattern, module, spelling, lora_alpha);
  const auto rank = static_cast<double>(rankOf(module, spelling));
  return static_cast<float>(use_rslora ? alpha / std::sqrt(rank) : alpha / rank);
}

}  // namespace chorus
