// The one tolerance by which an engine's logits are compared with the oracle's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "checkpoint/config.h"

namespace chorus::test {

// Both sides start from the same rounded weights, so what differs is rounding on the way:
//   - float32 sums. A logit stands behind 7 products a layer (qkv, scores, values, dense, fc and gate, their product,
//     proj) and the last one; a sum of K terms in float32 is off by about sqrt(K) 2^-24 of its size, in whatever
//     order. K is the longest sum: hidden, attention width, intermediate, or the positions attended to.
//   - the cache. With 16-bit engines keys and values are rounded once each a layer, by up to 2^-8 (bfloat16, 8 bits
//     of significand) or 2^-11 (float16, 11 bits); the oracle does not round them.
//   - inputs of products, where these take bfloat16: each is rounded by up to 2^-8, so the output is off by as much. 4
//     linears a layer and lm_head; an adapter's A x is rounded as well, so 8 a layer. Attention's queries and weights
//     are two more.
// Nothing else is 16 bits wide.
// Errors of different steps are independent and add in quadrature. What they do to a logit is relative to the
// largest one. Softmax and the gated product can double a relative error on its way, hence the 2.
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
