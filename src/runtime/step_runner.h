// The executor's interface to the network. Tests implement it with a small deterministic network.
#pragma once

#include <memory>
#include <span>

#include "models/prepared_adapter.h"
#include "models/step_input.h"

namespace chorus {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Called once on the step thread before its first step. May restrict it to some processors (RankGroup).
  virtual void placeStepThread() {}
  // Returns logits [input.logits_rows.size(), logitsWidth(input, vocab_size)] in host memory, valid until the next
  // run(). Called on the step thread only. An exception fails all running requests.
  virtual std::span<const float> run(const StepInput& input) = 0;
  // Composes adapters, each with an empty composition_refusal; terms: at least one. Fast: it copies no weights. Called
  // on the step thread only.
  virtual std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms) = 0;
};

}  // namespace chorus
