// The routing of a row, which the reference and the CPU share.
#include <cassert>
#include <cmath>

#include "kernels/moe/moe.h"

namespace chorus {

void routeRow(const float* logits, int64_t num_experts, const MoeRouting& routing, int32_t* experts, float* weights) {
  const int64_t top_k = routing.top_k;
  assert(top_k >= 1 && top_k <= num_experts);
  // Inserts one expert after the other into the list of the largest.
  int64_t count = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (count == top_k && !(logits[e] > logits[experts[count - 1]])) continue;
    if (count < top_k) ++count;
    int64_t at = count - 1;
    for (; at > 0 && logits[e] > logits[experts[at - 1]]; --at) experts[at] = experts[at - 1];
    experts[at] = static_cast<int32_t>(e);
  }
  const float largest = logits[experts[0]];
  float chosen = 0, all = 0;
  for (int64_t i = 0; i < top_k; ++i) {
    weights[i] = std::exp(logits[experts[i]] - largest);
    chosen += weights[i];
  }
  if (!routing.normalised) {
    for (int64_t e = 0; e < num_experts; ++e) all += std::exp(logits[e] - largest);
  }
  for (int64_t i = 0; i < top_k; ++i) weights[i] /= routing.normalised ? chosen : all;
}

}  // namespace chorus
