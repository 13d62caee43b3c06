// How linears with integer weights round their inputs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus {

// A fixed-point format of inputs (kernels/linear/fixed_point.h). Values of --activations.
enum class InputFormat : uint8_t {
  kInt16,         // 16 bits. A scale for every 128 inputs of a row, or scale group of the weight if that is shorter
  kInt8,          // 8 bits with the same scales
  kInt8PerToken,  // 8 bits. One scale for all inputs of a row; only for int8 weights with one scale per output
};

// The most inputs of a row with kInt8PerToken: the sum of their products with a weight must fit in 32 bits.
inline constexpr int64_t kMostInputsPerToken = 1 << 17;

inline constexpr std::array<std::string_view, 3> kInputFormatNames = {"int16", "int8", "int8_per_token"};

inline std::string_view inputFormatName(InputFormat format) { return kInputFormatNames[static_cast<size_t>(format)]; }
// Returns null for another name.
inline std::optional<InputFormat> inputFormatFromName(std::string_view name) {
  for (size_t i = 0; i < kInputFormatNames.size(); ++i) {
    if (name == kInputFormatNames[i]) return static_cast<InputFormat>(i);
  }
  return std::nullopt;
}

}  // namespace chorus
