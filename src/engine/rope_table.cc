#include "engine/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chorus {
namespace {

// The wavelength of pair i, divided by 2 pi.
float power(const RopeSpec& spec, size_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.dims);
  return std::pow(static_cast<float>(spec.base), exponent);
}

std::vector<float> plainFrequencies(const RopeSpec& spec) {
  std::vector<float> frequencies;
  for (size_t i = 0; i < static_cast<size_t>(spec.dims / 2); ++i) frequencies.push_back(1.0f / power(spec, i));
  return frequencies;
}

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

// YaRN keeps the frequencies of the first pairs, divides those of the last ones by scaling.factor, and interpolates in
// between. A pair turns beta_fast times over the original positions where the ramp begins, and beta_slow times where it
// ends.
std::vector<float> yarnFrequencies(const RopeSpec& spec) {
  const RopeScaling& scaling = spec.scaling;
  const auto pairOfRotations = [&](double rotations) {
    const double wavelengths = scaling.original_max_position_embeddings / (rotations * 2.0 * std::numbers::pi);
    return static_cast<double>(spec.dims) * std::log(wavelengths) / (2.0 * std::log(spec.base));
  };
  double begin = pairOfRotations(scaling.beta_fast), end = pairOfRotations(scaling.beta_slow);
  if (scaling.truncate) begin = std::floor(begin), end = std::ceil(end);
  begin = std::max(begin, 0.0);
  end = std::min(end, static_cast<double>(spec.dims - 1));
  if (begin == end) end += 0.001;
  std::vector<float> frequencies = plainFrequencies(spec);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(begin)) / static_cast<float>(end - begin);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float divided = 1.0f / (static_cast<float>(scaling.factor) * power(spec, i));
    frequencies[i] = divided * (1.0f - kept) + frequencies[i] * kept;
  }
  return frequencies;
}

// The factors are chosen once for all sequences of an engine. transformers chooses them by the length of each sequence,
// which changes keys that are already in the cache.
std::vector<float> longRopeFrequencies(const RopeSpec& spec, int64_t positions) {
  const RopeScaling& scaling = spec.scaling;
  const bool is_long = static_cast<double>(positions) > scaling.original_max_position_embeddings;
  const std::vector<float>& factors = is_long ? scaling.factors.ofLong() : scaling.factors.ofShort();
  std::vector<float> frequencies;
  for (size_t i = 0; i < factors.size(); ++i) frequencies.push_back(1.0f / (factors[i] * power(spec, i)));
  return frequencies;
}

// The inverse frequency of each pair.
std::vector<float> frequenciesOf(const RopeSpec& spec, int64_t positions) {
  if (spec.kind == RopeKind::kNone) return {};
  if (spec.scaling.type == RopeScalingType::kYarn) return yarnFrequencies(spec);
  if (spec.scaling.type == RopeScalingType::kLongRope) return longRopeFrequencies(spec, positions);
  std::vector<float> frequencies = plainFrequencies(spec);
  for (float& frequency : frequencies) {
    if (spec.scaling.type == RopeScalingType::kLinear) frequency /= static_cast<float>(spec.scaling.factor);
    if (spec.scaling.type == RopeScalingType::kLlama3) frequency = llama3Frequency(frequency, spec.scaling);
  }
  return frequencies;
}
}  // namespace

RopeTableMaker::RopeTableMaker(const RopeSpec& spec, int64_t positions)
    : frequencies_(frequenciesOf(spec, positions)), factor_(static_cast<float>(spec.scaling.attention_factor)) {}

void RopeTableMaker::make(int64_t begin, int64_t end, HostRopeTable& rows) const {
  const size_t size = static_cast<size_t>(end - begin) * frequencies_.size();
  rows.cos.resize(size);
  rows.sin.resize(size);
  size_t at = 0;
  for (int64_t p = begin; p < end; ++p) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(p) * frequency;
      rows.cos[at] = std::cos(angle) * factor_;
      rows.sin[at++] = std::sin(angle) * factor_;
    }
  }
}

std::vector<float> makeQueryScales(const QueryScaling& scaling, int64_t begin, int64_t end) {
  std::vector<float> scales;
  if (scaling.beta == 0) return scales;
  const auto beta = static_cast<float>(scaling.beta), length = static_cast<float>(scaling.length);
  scales.reserve(static_cast<size_t>(end - begin));
  for (int64_t p = begin; p < end; ++p) {
    scales.push_back(1.0f + beta * std::log(1.0f + std::floor(static_cast<float>(p) / length)));
  }
  return scales;
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
