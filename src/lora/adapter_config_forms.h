// Configurations of adapters that are not PEFT's, as the PEFT configuration with the same meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// The values of mlx-lm's configuration that PEFT's fields cannot express.
struct MlxConfig {
  double scale = 0;               // of every module
  int64_t last_layers = 0;        // only so many layers at the end are adapted; 0: all
  bool replaces_weights = false;  // fine_tune_type "full": the tensors are the model's own weights
};

// The fields that mlx-lm writes, as docs/adapter_config.md shows them: a table of those that are used, and a list of
// the inert ones. The fields of lora_parameters have that name before a dot.
std::string mlxFieldsMarkdown();

// Turns a configuration of mlx-lm (adapter_config.json with lora_parameters or fine_tune_type) or of the DoRA authors'
// code (peft_type "DORA") into PEFT's. Other configurations stay as they are. Returns what mlx-lm's says in addition;
// nullopt for the others. Throws Error that names source and field; logs one warning for unknown fields of mlx-lm.
std::optional<MlxConfig> toPeftConfig(Json& config, std::string_view source);

}  // namespace chorus
