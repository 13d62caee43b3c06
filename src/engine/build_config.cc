#include "engine/build_config.h"

#include "base/error.h"

namespace chorus {
namespace {

int32_t bounded(const Json& json, const char* key, int32_t fallback, int32_t low, std::string_view source) {
  constexpr int32_t kHigh = 1 << 28;
  const auto value = jsonGetOr<int32_t>(json, key, fallback, source);
  if (value < low || value > kHigh) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}, it must be at least {}", source, key, value, low);
  }
  return value;
}
}  // namespace

BuildConfig BuildConfig::fromJson(const Json& json, std::string_view source) {
  BuildConfig config;
  config.max_batch_size = bounded(json, "max_batch_size", config.max_batch_size, 1, source);
  config.max_input_len = bounded(json, "max_input_len", config.max_input_len, 1, source);
  config.max_seq_len = bounded(json, "max_seq_len", config.max_seq_len, 0, source);
  config.max_num_tokens = bounded(json, "max_num_tokens", config.max_num_tokens, 1, source);
  config.max_beam_width = bounded(json, "max_beam_width", config.max_beam_width, 1, source);
  config.max_lora_rank = bounded(json, "max_lora_rank", config.max_lora_rank, 1, source);
  config.tokens_per_block = bounded(json, "tokens_per_block", config.tokens_per_block, 1, source);
  if ((config.tokens_per_block & (config.tokens_per_block - 1)) != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: 'tokens_per_block' is {}, it must be a power of two", source,
         config.tokens_per_block);
  }
  config.lora_plugin = jsonGetOr<bool>(json, "lora_plugin", config.lora_plugin, source);
  config.dora_plugin = jsonGetOr<bool>(json, "dora_plugin", config.dora_plugin, source);
  config.backend = jsonGetOr<std::string>(json, "backend", config.backend, source);
  config.packing_version = jsonGetOr<int32_t>(json, "packing_version", config.packing_version, source);
  if (const auto modules = json.find("lora_target_modules"); modules != json.end() && modules->is_array()) {
    for (const Json& module : *modules) {
      if (!module.is_string()) fail(ErrorCode::kCorrupt, "{}: 'lora_target_modules' must hold strings", source);
      config.lora_target_modules.push_back(module.get<std::string>());
    }
  }
  if (const auto recorded = json.find("recorded"); recorded != json.end() && recorded->is_object()) {
    config.recorded = *recorded;
  }
  return config;
}

Json BuildConfig::toJson() const {
  return {{"max_batch_size", max_batch_size},
          {"max_input_len", max_input_len},
          {"max_seq_len", max_seq_len},
          {"max_num_tokens", max_num_tokens},
          {"max_beam_width", max_beam_width},
          {"max_lora_rank", max_lora_rank},
          {"tokens_per_block", tokens_per_block},
          {"lora_plugin", lora_plugin},
          {"dora_plugin", dora_plugin},
          {"lora_target_modules", lora_target_modules},
          {"backend", backend},
          {"packing_version", packing_version},
          {"recorded", recorded}};
}

}  // namespace chorus
