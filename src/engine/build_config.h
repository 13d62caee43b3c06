// Limits and plugins with which an engine was built: `build_config` of the engine's config.json, with trtllm-build's
// names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "engine/packing_version.h"
#include "kernels/input_format.h"

namespace chorus {

struct BuildConfig {
  int32_t max_batch_size = 64;
  int32_t max_input_len = 1024;
  int32_t max_seq_len = 0;  // 0: from the model
  int32_t max_num_tokens = 2048;
  int32_t max_beam_width = 1;
  int32_t tokens_per_block = 64;
  bool lora_plugin = false;
  bool dora_plugin = false;
  int32_t max_lora_rank = 64;
  std::vector<std::string> lora_target_modules;  // empty: all that the architecture has
  std::string backend = "cpu";
  int32_t packing_version = kPackingVersion;
  std::optional<DType> logits_dtype;  // written to pretrained_config; not read back
  // Changes the quantisation in pretrained_config (setActivations); not read back.
  std::optional<InputFormat> activations;
  Json recorded = Json::object();  // accepted trtllm-build flags that change nothing here

  static BuildConfig fromJson(const Json& json, std::string_view source);
  Json toJson() const;
};

}  // namespace chorus
