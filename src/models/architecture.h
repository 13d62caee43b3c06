// The registry of architectures. One file per architecture defines one of these; nothing else knows its name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "models/layer_spec.h"

namespace chorus {

// What an architecture computes of one structural field of the config (checkpoint/config_fields.h).
struct FieldValues {
  std::string_view field;
  std::vector<Json> values;  // beside the neutral ones
};

struct Architecture {
  std::string name;  // Hugging Face's class name
  // Source config.json -> ours, dtype and mapping still at their defaults. Throws Error that names a key which is
  // supported only at its default; logs a warning for an unlisted one.
  ModelConfig (*configFromHuggingFace)(const Json& json, std::string_view source);
  WeightTable (*weightTable)(const ModelConfig& config);
  ModelSpec (*modelSpec)(const ModelConfig& config);
  std::vector<std::string> ignored_sources;  // patterns (fnmatch) of source tensors that carry no weights
  // The structural fields that weightTable and modelSpec obey. A config that asks for more is refused.
  std::vector<FieldValues> fields;
  std::vector<std::string> aliases = {};  // other spellings of the name, as checkpoints have them
};

// What comes with Chorus, one line per file of this folder.
std::vector<Architecture> builtInArchitectures();

// The architectures of the program, a list that is linked and never changes: known_architectures.cc gives the built-in
// ones. A program that has more defines this function itself, and the linker takes its list instead
// (examples/architecture/).
std::span<const Architecture> knownArchitectures();

// By name or alias. Throws Error(kUnsupported) that names the architecture and lists the known ones.
const Architecture& findArchitecture(std::string_view name);

// The architecture of a config that was read from `source`. Throws Error(kUnsupported) where findArchitecture does, and
// where a field asks for what this architecture does not compute: one line with field, value and what is supported.
const Architecture& architectureOf(const ModelConfig& config, std::string_view source);

}  // namespace chorus
