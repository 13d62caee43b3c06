// A Llama network in plain loops over doubles: a reference that shares no code with src/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "random_llama.h"

namespace chorus::test {

// Settings of a checkpoint's config other than shapes.
struct PlainNetwork {
  std::function<double(double)> activation;
  double q_scaling = 1;
  // Rotary pairs of a head of d values are (0, 1), (2, 3), ... instead of (0, d / 2), (1, d / 2 + 1), ...
  bool adjacent_pairs = false;
};

// The logits [tokens, vocab] of a sequence at all its positions.
std::vector<float> plainLogits(const RandomLlama& model, const PlainNetwork& network, std::span<const int32_t> tokens);

}  // namespace chorus::test
