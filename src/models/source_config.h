// Reads what the Hugging Face configs of most architectures have in common: the check of their keys, the sizes, and the
// rotary positions in the spellings of transformers 4 and 5.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/config.h"

namespace chorus {

// The keys of an architecture's source config, by how they are treated. checkSourceKeys() logs a warning for a key that
// is neither in these lists nor in the lists for all architectures.
struct SourceKeys {
  std::vector<std::string_view> used;
  std::vector<std::string_view> inert;                             // in addition to kInertEverywhere
  std::vector<std::pair<std::string_view, Json>> only_at_default;  // another value is an error that names the key
};
void checkSourceKeys(const Json& json, const SourceKeys& keys, std::string_view source);

// Reads sizes, norm epsilon, activation and tying in the spelling that most configs share. The caller sets
// architecture, position embedding and biases, and calls finalize(). decoderKeys() returns the keys that
// readDecoderConfig and readRotary read, for SourceKeys::used.
ModelConfig readDecoderConfig(const Json& json, std::string_view source);
std::vector<std::string_view> decoderKeys();

// The config with `defaults` for its keys that are missing or null: an architecture has here what transformers' class
// of its config has, where that differs from the other readers' values. Null is kept for num_key_value_heads and
// head_dim, because transformers then derives the value from other sizes.
Json withDefaults(const Json& json, const Json& defaults);

// Reads either rope_theta and rope_scaling at the top level, or rope_parameters, which holds the values of both. Sets
// rotary_base and rotary_scaling (checkpoint/rope_scaling.h); max_position_embeddings must be set. With kRead, also
// reads partial_rotary_factor (the share of a head that is rotated), at the top level or inside, and sets
// rotary_embedding_dim. other_keys: keys inside that the caller reads. Throws Error(kUnsupported) for other types of
// scaling, and for keys that the type does not support; with kRefused, also for a partial_rotary_factor inside that is
// not 1.
enum class PartialRotary { kRefused, kRead };
void readRotary(const Json& json, std::string_view source, PartialRotary partial, ModelConfig& config,
                std::vector<std::string_view> other_keys = {});

}  // namespace chorus
