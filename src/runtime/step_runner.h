// What the executor needs of a network: one step. A session runs it; tests put a small deterministic network
// here.
#pragma once

#include <span>

#include "models/step_input.h"

namespace chorus {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Logits [input.logits_rows, vocab] in host memory, valid until the next run. Called on the step thread
  // alone. What it throws fails the requests that run.
  virtual std::span<const float> run(const StepInput& input) = 0;
};

}  // namespace chorus
