// Every field of adapter_config.json that PEFT writes, and what it means here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

enum class PeftFieldUse {
  kUsed,         // read and acted on
  kInert,        // of training or of provenance: no value changes what the adapter computes
  kDefaultOnly,  // another value than the default is refused by name
};

struct PeftField {
  std::string_view name;
  PeftFieldUse use;
  std::string_view default_json;  // what PEFT writes unasked; of kDefaultOnly the only value besides "nothing"
  std::string_view note;          // why, for docs/adapter_config.md
};

// In the order of PEFT's documentation.
std::span<const PeftField> peftFields();
// The table as docs/adapter_config.md shows it.
std::string peftFieldsMarkdown();

// Throws Error(kUnsupported) that names a kDefaultOnly field with another value than its default or nothing (null,
// false, an empty list or object). Logs one warning for fields that are not listed.
void checkPeftFields(const Json& config, std::string_view source);

}  // namespace chorus
