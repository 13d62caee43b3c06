// The registry of architectures. Each architecture is defined in one file; no other code depends on its name.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "models/model_spec.h"

namespace chorus {

// Values of a structural field that are supported besides those that an architecture lists.
enum class FieldRange {
  kNone,
  kFactor,  // numbers from kLeastFactor to kGreatestFactor
  kSize,    // whole numbers from 1 to 2147483647
  kList,    // lists; the function that reads the field checks what is in them
};
// Values of one structural field of the config (checkpoint/config_fields.h) that an architecture supports.
struct FieldValues {
  std::string_view field;
  std::vector<Json> values = {};  // in addition to ConfigField::neutral
  FieldRange range = FieldRange::kNone;
};
// A factor in this range and its reciprocal are finite in float32.
inline constexpr double kLeastFactor = 1e-30, kGreatestFactor = 1e30;
inline bool isFactor(double value) { return value >= kLeastFactor && value <= kGreatestFactor; }

struct Architecture {
  std::string name;  // Hugging Face's class name
  // Converts a Hugging Face config.json to a ModelConfig; dtype and mapping keep their defaults. Throws an Error that
  // names the key if a key that is supported only at its default has another value. Logs a warning for unlisted keys.
  std::function<ModelConfig(const Json& json, std::string_view source)> configFromHuggingFace;
  std::function<WeightTable(const ModelConfig& config)> weightTable;
  std::function<ModelSpec(const ModelConfig& config)> modelSpec;
  std::vector<std::string> ignored_sources;  // patterns (fnmatch) of source tensors that carry no weights
  // The structural fields that weightTable and modelSpec apply. architectureOf() refuses a config in which a structural
  // field has a value that is neither neutral nor listed here.
  std::vector<FieldValues> fields;
  std::vector<std::string> aliases = {};  // other spellings of the name in checkpoints
  // Patterns (fnmatch) of the source's modules and tensors that belong to parts of the model that are not served, such
  // as the encoder of images. A source and an adapter may have them; they are not read.
  std::vector<std::string> left_out = {};
  // models and structure appear in the table of `chorus inspect --architectures`, which README.md contains: the
  // published models that have this architecture, under the names that users know ("Qwen2.5"), and one phrase about
  // what this architecture computes that others do not, with what it supports only in part.
  std::vector<std::string> models = {};
  std::string structure = {};
};

// The architectures that are part of Chorus.
std::vector<Architecture> builtInArchitectures();

// The architectures of this program; the list never changes. known_architectures.cc defines this function and returns
// the built-in ones. A program that adds architectures defines the function itself, and the linker uses that definition
// instead (examples/architecture/).
std::span<const Architecture> knownArchitectures();

// Finds an architecture by its name or an alias. Throws Error(kUnsupported) that names the architecture and lists the
// known ones.
const Architecture& findArchitecture(std::string_view name);

// The architecture of a config that was read from `source`. Throws what findArchitecture throws, and
// Error(kUnsupported) if a structural field has a value that this architecture does not support. The message is one
// line with the field, its value and the supported values.
const Architecture& architectureOf(const ModelConfig& config, std::string_view source);

// The check of the structural fields that architectureOf() makes.
void checkFields(const ModelConfig& config, const Architecture& architecture, std::string_view source);

}  // namespace chorus
