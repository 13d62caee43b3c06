// The executor's interface to the network: runs one step. Tests implement it with a small deterministic network.
#pragma once

#include <span>

#include "models/step_input.h"

namespace chorus {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Returns logits [input.logits_rows.size(), logitsWidth(input, vocab_size)] in host memory, valid until the next
  // run(). Called on the step thread only. An exception fails all running requests.
  virtual std::span<const float> run(const StepInput& input) = 0;
};

}  // namespace chorus
