// The keys of a checkpoint's config.json: those of TensorRT-LLM's PretrainedConfig and of its models, and what each one
// means to a program that does not compute it. The only list of them.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"

namespace chorus {

enum class FieldUse {
  kRead,        // ModelConfig reads it, and every architecture obeys it
  kStructural,  // changes the numbers: an architecture lists the values that it computes (models/architecture.h)
  kInert,       // changes no number
};

struct ConfigField {
  std::string_view name;  // with a dot for a member of an object: "moe.num_experts"
  FieldUse use = FieldUse::kRead;
  // Only for structural fields: the values that ask for nothing, which every architecture takes. null always is one.
  Json neutral = Json::array();
  // Only for structural fields: what a config.json without the field means, where that is not neutral.
  Json absent = nullptr;
};

std::span<const ConfigField> configFields();
// Whether a key at the top of config.json is listed, by itself or with members.
bool isConfigKey(std::string_view key);
// What the config says of a field; null where it says nothing. For a member of something that is no object, that.
const Json& configValue(const Json& config, std::string_view field);

}  // namespace chorus
