#include "text/generation_defaults.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

void addEndIds(const Json& config, const std::string& source, std::vector<int32_t>& ids) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return;
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& one : list) {
    const auto id = jsonGet<int32_t>(Json{{"eos_token_id", one}}, "eos_token_id", source);
    if (id < 0) fail(ErrorCode::kInvalidArgument, "{}: 'eos_token_id' {} is negative", source, id);
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

// The elements of an array; none when the key is absent or null.
std::vector<Json> elementsOf(const Json& config, const char* key, const std::string& source) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return {};
  if (!it->is_array()) fail(ErrorCode::kInvalidArgument, "{}: '{}' is not an array", source, key);
  return *it;
}

int32_t tokenOf(const Json& value, const char* key, const std::string& source) {
  const auto id = jsonGet<int32_t>(Json{{key, value}}, key, source);
  if (id < 0) fail(ErrorCode::kInvalidArgument, "{}: '{}' holds the negative token id {}", source, key, id);
  return id;
}

void addBadWords(const Json& config, const std::string& source, std::vector<std::vector<int32_t>>& words) {
  for (const Json& word : elementsOf(config, "bad_words_ids", source)) {
    words.emplace_back();
    for (const Json& one : elementsOf(Json{{"bad_words_ids", word}}, "bad_words_ids", source))
      words.back().push_back(tokenOf(one, "bad_words_ids", source));
    if (words.back().empty()) fail(ErrorCode::kInvalidArgument, "{}: 'bad_words_ids' holds an empty word", source);
  }
  for (const Json& one : elementsOf(config, "suppress_tokens", source))
    words.push_back({tokenOf(one, "suppress_tokens", source)});
}

int32_t count(const Json& config, const char* key, const std::string& source) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return 0;
  const auto value = jsonGet<int32_t>(config, key, source);
  if (value < 0) fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}, expected 0 or more", source, key, value);
  return value;
}

// Warns of transformers' settings that would change what is generated and have no field in the API.
void warnOfOthers(const Json& config, const std::string& source) {
  const std::pair<const char*, Json> neutral[] = {
      {"num_beams", 1},
      {"num_beam_groups", 1},
      {"penalty_alpha", 0},
      {"typical_p", 1},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"guidance_scale", 1},
      {"diversity_penalty", 0},
      {"encoder_repetition_penalty", 1},
      {"top_h", nullptr},
      {"sequence_bias", nullptr},
      {"begin_suppress_tokens", nullptr},
      {"stop_strings", nullptr},
      {"forced_bos_token_id", nullptr},
      {"forced_eos_token_id", nullptr},
      {"exponential_decay_length_penalty", nullptr},
      {"max_new_tokens", nullptr},
  };
  for (const auto& [key, value] : neutral) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null() || *it == value) continue;
    log::warn("{}: '{}' is not supported as a default and is not applied", source, key);
  }
}

double inRange(const Json& config, const char* key, double fallback, double low, double high,
               const std::string& source) {
  const double value = jsonGetOr<double>(config, key, fallback, source);
  if (!(value >= low && value <= high)) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}, expected {} to {}", source, key, value, low, high);
  }
  return value;
}

}  // namespace

GenerationDefaults readGenerationDefaults(const fs::path& directory, std::optional<int32_t> end_token) {
  GenerationDefaults defaults;
  const fs::path generation = directory / "generation_config.json";
  const fs::path model = directory / "config.json";
  if (fs::exists(generation)) {
    const Json config = readJsonFile(generation);
    const std::string source = generation.string();
    addEndIds(config, source, defaults.end_ids);
    defaults.temperature = inRange(config, "temperature", 1.0, 0.0, 100.0, source);
    defaults.top_p = inRange(config, "top_p", 1.0, 0.0, 1.0, source);
    defaults.min_p = inRange(config, "min_p", 0.0, 0.0, 1.0, source);
    // transformers writes its default of 50 only if the model's author chose it, so a missing value means all tokens.
    defaults.top_k = std::max(0, jsonGetOr<int32_t>(config, "top_k", 0, source));
    if (!jsonGetOr<bool>(config, "do_sample", true, source)) defaults.temperature = 0.0;
    defaults.repetition_penalty = inRange(config, "repetition_penalty", 1.0, 1e-6, 100.0, source);
    defaults.no_repeat_ngram_size = count(config, "no_repeat_ngram_size", source);
    defaults.min_tokens = count(config, "min_new_tokens", source);
    addBadWords(config, source, defaults.bad_words);
    warnOfOthers(config, source);
  }
  if (defaults.end_ids.empty() && fs::exists(model)) {
    const Json config = readJsonFile(model);
    addEndIds(config, model.string(), defaults.end_ids);
  }
  const std::vector<int32_t>& found = defaults.end_ids;
  if (end_token && std::find(found.begin(), found.end(), *end_token) == found.end()) {
    defaults.end_ids.push_back(*end_token);
  }
  return defaults;
}

}  // namespace chorus
