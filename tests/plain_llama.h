// A Llama network in plain loops of doubles: a reference that shares nothing with src/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "random_llama.h"

namespace chorus::test {

// What a checkpoint's config says beyond the shapes.
struct PlainNetwork {
  std::function<double(double)> activation;
  double q_scaling = 1;
  bool adjacent_pairs =
      false;  // rotary positions turn (0, 1), (2, 3), ... of a head, not (0, d / 2), (1, d / 2 + 1), ...
};

// The logits [tokens, vocab] of a sequence from its first position on.
std::vector<float> plainLogits(const RandomLlama& model, const PlainNetwork& network, std::span<const int32_t> tokens);

}  // namespace chorus::test
