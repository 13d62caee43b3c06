#include "engine/rope_table.h"

#include <cmath>
#include <numbers>

namespace chorus {
namespace {

// Llama 3.1's rescaling: the frequency of long wavelengths is divided by scaling.factor, that of short wavelengths is
// kept, and in between the two are interpolated.
float llama3Frequency(float frequency, const RopeScaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double low_wavelength = scaling.original_max_position_embeddings / scaling.low_freq_factor;
  const double high_wavelength = scaling.original_max_position_embeddings / scaling.high_freq_factor;
  if (wavelength > low_wavelength) return static_cast<float>(frequency / scaling.factor);
  if (wavelength < high_wavelength) return frequency;
  const double smooth = (scaling.original_max_position_embeddings / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * frequency / scaling.factor + smooth * frequency);
}

float inverseFrequency(const ModelConfig& config, int64_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.rotary_embedding_dim);
  const float frequency = 1.0f / std::pow(static_cast<float>(config.rotary_base), exponent);
  switch (config.rotary_scaling.type) {
    case RopeScalingType::kNone:
      return frequency;
    case RopeScalingType::kLinear:
      return frequency / static_cast<float>(config.rotary_scaling.factor);
    case RopeScalingType::kLlama3:
      return llama3Frequency(frequency, config.rotary_scaling);
  }
  return frequency;
}
}  // namespace

HostRopeTable makeRopeTable(const ModelConfig& config, int64_t positions) {
  const int64_t half = config.rotary_embedding_dim / 2;
  HostRopeTable table;
  table.cos.resize(static_cast<size_t>(positions * half));
  table.sin.resize(static_cast<size_t>(positions * half));
  for (int64_t i = 0; i < half; ++i) {
    const float frequency = inverseFrequency(config, i);
    for (int64_t p = 0; p < positions; ++p) {
      const float angle = static_cast<float>(p) * frequency;
      table.cos[static_cast<size_t>(p * half + i)] = std::cos(angle);
      table.sin[static_cast<size_t>(p * half + i)] = std::sin(angle);
    }
  }
  return table;
}

}  // namespace chorus
