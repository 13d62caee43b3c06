#include "server/generation_defaults.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace chorus::server {
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

double inRange(const Json& config, const char* key, double fallback, double low, double high,
               const std::string& source) {
  const double value = jsonGetOr<double>(config, key, fallback, source);
  if (!(value >= low && value <= high)) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}, expected {} to {}", source, key, value, low, high);
  }
  return value;
}

}  // namespace

GenerationDefaults readGenerationDefaults(const fs::path& directory, const TextCodec& text) {
  GenerationDefaults defaults;
  const fs::path generation = directory / "generation_config.json";
  const fs::path model = directory / "config.json";
  if (fs::exists(generation)) {
    const Json config = readJsonFile(generation);
    const std::string source = generation.string();
    addEndIds(config, source, defaults.endIds);
    defaults.temperature = inRange(config, "temperature", 1.0, 0.0, 100.0, source);
    defaults.topP = inRange(config, "top_p", 1.0, 0.0, 1.0, source);
    defaults.minP = inRange(config, "min_p", 0.0, 0.0, 1.0, source);
    // transformers writes its own default of 50 only when the model's author chose it.
    defaults.topK = std::max(0, jsonGetOr<int32_t>(config, "top_k", 0, source));
    if (!jsonGetOr<bool>(config, "do_sample", true, source)) defaults.temperature = 0.0;
    if (inRange(config, "repetition_penalty", 1.0, 0.0, 100.0, source) != 1.0) {
      log::warn("{}: 'repetition_penalty' is not supported as a default and is not applied", source);
    }
  }
  if (defaults.endIds.empty() && fs::exists(model)) {
    const Json config = readJsonFile(model);
    addEndIds(config, model.string(), defaults.endIds);
  }
  if (const auto eos = text.eosTokenId()) {
    if (std::find(defaults.endIds.begin(), defaults.endIds.end(), *eos) == defaults.endIds.end()) {
      defaults.endIds.push_back(*eos);
    }
  }
  return defaults;
}

}  // namespace chorus::server
