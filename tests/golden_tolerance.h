// The tolerance for all comparisons of an engine's logits with the oracle's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "checkpoint/config.h"

namespace chorus::test {

// Both sides start from the same rounded weights, so they differ only by rounding in the computation:
//   - float32 sums. A logit depends on 7 products per layer (qkv, scores, values, dense, fc and gate, their product,
//     proj) and on the last one. A sum of K terms in float32, in any order, has an error of about sqrt(K) 2^-24 of its
//     size. K is the longest sum: hidden, attention width, intermediate, or the positions attended to.
//   - the KV cache. In 16-bit engines keys and values are rounded once per layer each, by up to 2^-8 (bfloat16, 8 bits
//     of significand) or 2^-11 (float16, 11 bits). The oracle does not round them.
//   - inputs of products, if these take bfloat16: each is rounded by up to 2^-8, and the output has as large an error.
//     There are 4 linears per layer and lm_head. An adapter's A x is rounded as well, which makes 8 per layer.
//     Attention's queries and weights are two more.
// Nothing else has 16 bits.
//
// Errors of different steps are independent and add in quadrature. Their effect on a logit is relative to the largest
// logit. Softmax and the gated product can double a relative error, hence the factor 2.
//
// A softmax with two nearly equal, large scores multiplies it by more: in one prompt of a Gemma 1, whose adapter
// enlarges the scores, rounding keys and values to float16 moved the reference's own logits by 1.13 of this tolerance.
// The scripts can leave such prompts out (`steady` in oracle/llama_goldens.py).
//
// linear_inputs: see linearInputType.
inline double goldenTolerance(DType dtype, DType linear_inputs, const ModelConfig& config, int64_t positions,
                              double largest_logit) {
  const double layers = config.num_hidden_layers;
  const int64_t longest = std::max(
      {config.hidden_size, config.num_attention_heads * config.head_size, config.intermediate_size, positions});
  const double sum = std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(longest));
  const double cache = dtype == DType::kBFloat16  ? std::ldexp(1.0, -8)
                       : dtype == DType::kFloat16 ? std::ldexp(1.0, -11)
                                                  : 0.0;
  const double inputs = linear_inputs == DType::kBFloat16 ? std::ldexp(1.0, -8) : 0.0;
  return 2 * largest_logit *
         std::sqrt((7 * layers + 1) * sum * sum + 2 * layers * cache * cache + (10 * layers + 1) * inputs * inputs);
}

}  // namespace chorus::test
