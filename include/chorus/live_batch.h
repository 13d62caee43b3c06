// Chorus: what an executor does at a moment, for monitoring.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "chorus/statistics.h"
#include "chorus/types.h"

namespace chorus::executor {

// A sequence that occupies a slot.
struct RunningSequence {
  IdType requestId = 0;
  std::optional<IdType> clientId;  // of the request
  bool generates = false;          // false: its context is being computed
  bool inStep = false;             // it takes part in the latest step
  SizeType32 promptTokens = 0;
  SizeType32 computedTokens = 0;   // tokens whose keys and values are in the cache
  SizeType32 generatedTokens = 0;  // so far
  std::vector<IdType> adapters;    // task ids; empty for the base model, several for a composition
};

// An adapter in the cache's host level.
struct ResidentAdapter {
  IdType taskId = 0;
  std::int64_t bytes = 0;
  SizeType32 users = 0;  // requests that use it or wait for it
  bool loading = false;
  bool onDevice = false;  // in the cache's device level too
};

// Totals since the start, over all steps.
struct StepTotals {
  std::int64_t steps = 0;
  double schedulingSeconds = 0;  // admission, plan and input of the steps
  double networkSeconds = 0;
  double samplingSeconds = 0;  // from the end of the network to the new tokens
  double deliverySeconds = 0;  // from the new tokens to the end of the step
  std::int64_t contextTokens = 0;
  std::int64_t generatedTokens = 0;
  std::int64_t contextSequences = 0;     // summed over steps
  std::int64_t generationSequences = 0;  // summed over steps
  std::int64_t adapters = 0;             // distinct adapters of a step, summed over steps
  std::int64_t preemptions = 0;
};

// The lists of adapters are at most 100 ms older than the rest.
struct LiveBatch {
  std::vector<RunningSequence> running;  // in the order they started
  SizeType32 numWaiting = 0;             // sequences in the queue
  SizeType32 maxBatchSize = 0;
  StepTotals totals;
  KvCacheStats kvCache;
  AdapterCacheStats adapterCache;
  std::vector<ResidentAdapter> adapters;  // by task id
  std::vector<IdType> waitingAdapters;    // task ids of waiting sequences, ascending, each once
};

}  // namespace chorus::executor
