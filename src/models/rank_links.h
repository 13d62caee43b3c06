// A rank's place among the ranks that run a step together.
#pragma once

#include "comm/communicator.h"

namespace chorus {

// `tensor` is null without tensor parallelism and `pipeline` without pipeline parallelism.
struct RankLinks {
  Communicator* tensor = nullptr;    // between the ranks of this stage
  Communicator* pipeline = nullptr;  // between the ranks with the same tp_rank, by stage

  bool firstStage() const { return pipeline == nullptr || pipeline->rank() == 0; }
  bool lastStage() const { return pipeline == nullptr || pipeline->rank() + 1 == pipeline->size(); }
};

}  // namespace chorus
