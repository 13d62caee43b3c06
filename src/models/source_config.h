// What Hugging Face configs share across architectures: the policy for keys, and rotary positions in the spellings
// of transformers 4 and 5.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/config.h"

namespace chorus {

// How an architecture treats the keys of its source config. A key is in one list; any other key is a warning.
struct SourceKeys {
  std::vector<std::string_view> used;
  std::vector<std::string_view> inert;                             // beyond those inert everywhere
  std::vector<std::pair<std::string_view, Json>> only_at_default;  // another value is an error that names the key
};
void checkSourceKeys(const Json& json, const SourceKeys& keys, std::string_view source);

// Sizes, norm epsilon, activation and tying in the spelling that most configs share; decoderKeys() are the keys
// it reads and those of readRotary, for SourceKeys::used. Left to the caller: architecture, position embedding, biases,
// and finalize.
ModelConfig readDecoderConfig(const Json& json, std::string_view source);
std::vector<std::string_view> decoderKeys();

// rope_theta and rope_scaling at the top, or rope_parameters with both inside. Fills rotary_base and rotary_scaling.
// kRead: partial_rotary_factor, at the top or inside, is the share of a head that is rotated and fills
// rotary_embedding_dim. Throws Error(kUnsupported) that names a scaling type other than default, linear and llama3, or
// a factor that is refused.
enum class PartialRotary { kRefused, kRead };
void readRotary(const Json& json, std::string_view source, PartialRotary partial, ModelConfig& config);

}  // namespace chorus
