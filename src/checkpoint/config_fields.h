// The single list of known keys in a checkpoint's config.json: those of TensorRT-LLM's PretrainedConfig and of its
// models. It defines which keys change results and which may be ignored.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"

namespace chorus {

enum class FieldUse {
  kRead,        // ModelConfig reads it, and every architecture applies it
  kStructural,  // changes results: each architecture lists the values that it supports (models/architecture.h)
  kInert,       // does not change results
};

struct ConfigField {
  std::string_view name;  // a member of an object is written with a dot: "moe.num_experts"
  FieldUse use = FieldUse::kRead;
  // Structural fields only: array of the values that change nothing, so every architecture accepts them. null is always
  // accepted.
  Json neutral = Json::array();
  // Structural fields only: the value that is assumed if the field is missing; null if a missing field changes nothing.
  Json absent = nullptr;
};

std::span<const ConfigField> configFields();
// Whether a top-level key of config.json is listed, either itself or as the object of a listed member.
bool isConfigKey(std::string_view key);
// The value of a field in the config; null when it is missing. For "KEY.MEMBER" where KEY is not an object, the value
// of KEY.
const Json& configValue(const Json& config, std::string_view field);

}  // namespace chorus
