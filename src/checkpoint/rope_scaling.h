// RoPE scaling: how a model changes the frequencies of its rotary positions to reach more positions than it was first
// trained with. Names and formulas are those of transformers' modeling_rope_utils.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace chorus {

enum class RopeScalingType { kNone, kLinear, kLlama3, kYarn, kLongRope };

// The numbers by which longrope divides the frequencies: two lists with one number for each rotated pair of a head.
// Copies of an object share the lists, because every layer of a model has such an object.
class LongRopeFactors {
 public:
  LongRopeFactors() = default;
  LongRopeFactors(std::vector<float> short_factor, std::vector<float> long_factor)
      : lists_(std::make_shared<const Lists>(Lists{std::move(short_factor), std::move(long_factor)})) {}

  // ofShort() is for sequences of up to original_max_position_embeddings tokens, ofLong() for longer ones.
  const std::vector<float>& ofShort() const { return lists().short_factor; }
  const std::vector<float>& ofLong() const { return lists().long_factor; }

  bool operator==(const LongRopeFactors& other) const { return lists() == other.lists(); }

 private:
  struct Lists {
    std::vector<float> short_factor, long_factor;
    bool operator==(const Lists&) const = default;
  };
  const Lists& lists() const {
    static const Lists kNone;
    return lists_ == nullptr ? kNone : *lists_;
  }
  std::shared_ptr<const Lists> lists_;
};

struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                 // llama3 only
  double high_freq_factor = 4.0;                // llama3 only
  double original_max_position_embeddings = 0;  // llama3, yarn and longrope
  double attention_factor = 1.0;                // yarn and longrope: multiplies cos and sin
  double beta_fast = 32.0;                      // yarn only: rotations over the original positions, as beta_slow
  double beta_slow = 1.0;
  bool truncate = true;  // yarn only: whether the ramp between the two begins and ends at whole pairs
  LongRopeFactors factors;

  bool operator==(const RopeScaling&) const = default;
};

// Lengths that scaling depends on and that a config has as keys of their own, not in the object of the scaling.
struct RopeLengths {
  int64_t max_position_embeddings = 0;  // 0: the config does not have it
  // original_max_position_embeddings; if the config has it, the key of this name in the object is not used.
  std::optional<double> original_length;
};

// Reads rope_scaling or rope_parameters of a Hugging Face config, or rotary_scaling of a checkpoint. type: "default",
// "none" (an alias of "default"), "linear", "llama3", "yarn" or "longrope". where: names the object in error messages.
// other_keys: keys of the object that the caller reads. Throws Error(kUnsupported) for another type and for a key that
// the type does not have, and Error(kInvalidArgument) for a value that is missing, malformed or out of range.
RopeScaling readRopeScaling(const Json& object, std::string_view type, std::string_view where,
                            const RopeLengths& lengths, const std::vector<std::string_view>& other_keys);
// Returns a checkpoint's rotary_scaling object for the scaling; null for kNone. readRopeScaling() reads the same values
// from it.
Json ropeScalingJson(const RopeScaling& scaling);

// Throws Error(kInvalidArgument) that names source if the scaling does not fit rotary_dims and base.
void checkRopeScaling(const RopeScaling& scaling, int64_t rotary_dims, double base, std::string_view source);

}  // namespace chorus
