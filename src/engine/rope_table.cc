#include "engine/rope_table.h"

#include <algorithm>
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

float inverseFrequency(const RopeSpec& spec, int64_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.dims);
  const float frequency = 1.0f / std::pow(static_cast<float>(spec.base), exponent);
  switch (spec.scaling.type) {
    case RopeScalingType::kNone:
      return frequency;
    case RopeScalingType::kLinear:
      return frequency / static_cast<float>(spec.scaling.factor);
    case RopeScalingType::kLlama3:
      return llama3Frequency(frequency, spec.scaling);
  }
  return frequency;
}
}  // namespace

HostRopeTable makeRopeTable(const RopeSpec& spec, int64_t positions) {
  const int64_t half = spec.kind == RopeKind::kNone ? 0 : spec.dims / 2;
  HostRopeTable table;
  table.cos.resize(static_cast<size_t>(positions * half));
  table.sin.resize(static_cast<size_t>(positions * half));
  for (int64_t i = 0; i < half; ++i) {
    const float frequency = inverseFrequency(spec, i);
    for (int64_t p = 0; p < positions; ++p) {
      const float angle = static_cast<float>(p) * frequency;
      table.cos[static_cast<size_t>(p * half + i)] = std::cos(angle);
      table.sin[static_cast<size_t>(p * half + i)] = std::sin(angle);
    }
  }
  return table;
}

int64_t ropeTableBytes(const RopeSpec& spec, int64_t positions) {
  return spec.kind == RopeKind::kNone ? 0 : 2 * positions * (spec.dims / 2) * static_cast<int64_t>(sizeof(float));
}

std::vector<RopeSpec> ropeSpecs(const ModelSpec& spec) {
  std::vector<RopeSpec> specs;
  for (const LayerSpec& layer : spec.layers) {
    if (std::find(specs.begin(), specs.end(), layer.attention.rope) == specs.end()) {
      specs.push_back(layer.attention.rope);
    }
  }
  return specs;
}

}  // namespace chorus
