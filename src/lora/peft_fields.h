// Every field of adapter_config.json that PEFT writes, and what it means here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

enum class PeftFieldUse {
  kUsed,         // read and acted on
  kInert,        // training or provenance: no value changes what the adapter computes
  kDefaultOnly,  // refused by name unless at its default
};

struct PeftField {
  std::string_view name;
  PeftFieldUse use;
  std::string_view default_json;  // the value that PEFT writes by default
  std::string_view note;          // why, for docs/adapter_config.md
};

// In the order of PEFT's documentation.
std::span<const PeftField> peftFields();
// The table as docs/adapter_config.md shows it.
std::string peftFieldsMarkdown();

// Throws Error(kUnsupported) that names a kDefaultOnly field whose value is neither its default nor unset (null, false,
// an empty list or object). Logs one warning for fields that are not listed.
void checkPeftFields(const Json& config, std::string_view source);

}  // namespace chorus
