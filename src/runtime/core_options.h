// Settings of ExecutorCore. The executor derives them from its configuration, the engine and the free memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "chorus/executor_config.h"
#include "chorus/request.h"
#include "runtime/adapter_cache/adapter_cache.h"
#include "runtime/adapter_cache/tensor_source.h"
#include "runtime/decoding/decoding_strategy.h"
#include "runtime/decoding/token_mask.h"
#include "runtime/fair_queue.h"
#include "runtime/request_checks.h"
#include "runtime/scheduler.h"
#include "runtime/step_costs.h"

namespace chorus {

struct CoreOptions {
  RequestLimits requests;
  SchedulerLimits scheduler;
  std::optional<int32_t> max_queue_size;  // sequences that wait for their first step
  Fairness fairness = Fairness::kTurns;
  int32_t iter_stats_max = 1000;
  int32_t request_stats_max = 0;
  bool static_batching = false;  // fills staticBatchingStats instead of inflightBatchingStats
  std::optional<executor::LogitsPostProcessorConfig> logits_post_processors;
  MakeStrategy make_strategy = makeStrategy;  // called on the threads that enqueue requests
  // Makes the source of one sequence's token masks, or null for none. Called on the threads that enqueue requests, once
  // for each sequence. Empty: no request has masks.
  std::function<std::unique_ptr<TokenMaskSource>(const executor::Request&)> token_masks;
  int sampler_threads = 1;
  AdapterSize adapter_pin_capacity;   // limit on pinned adapters (AdapterCapacity::pinned)
  AdapterSize adapter_host_capacity;  // the device level's capacity is scheduler.adapter_budget
  bool reject_when_full = false;      // of the host level: see PeftCacheConfig::getRejectWhenFull()
  // Sizes adapters that are sent as tensors.
  PackedRowBytes adapter_row_bytes = packedRowBytes(weightPacker("cpu"), DType::kBFloat16, 1);
  int adapter_workers = 1;
  std::function<void(const AdapterCacheEvent&)> adapter_observer;  // called on the step thread; may be empty
  bool block_reuse = true;                                         // between requests
  executor::KvReuseScope reuse_scope = executor::KvReuseScope::kALL;
  // Bytes of the base model's weights that a step with max_batch_size rows reads on all ranks (Engine::stepBytes). The
  // costs of adapters and of attention are relative to it; 0: they are not counted.
  int64_t base_bytes = 0;
  // Bytes of one KV block over all layers and ranks: for statistics, and for the cost of attention.
  int64_t kv_block_bytes = 0;

  // The most waiting sequences that a round admits, and the most that it ends. A batch, so that one round can fill it,
  // but at least 64. Admitting or ending one takes some microseconds.
  int32_t sequencesPerRound() const { return std::max(64, scheduler.max_batch_size); }
  // All are 0 if base_bytes is.
  KvSizes kvSizes() const {
    const double tokens = static_cast<double>(base_bytes) * scheduler.kv.tokens_per_block;
    return {scheduler.kv.windows, tokens == 0 ? 0 : static_cast<double>(kv_block_bytes) / tokens};
  }
};

}  // namespace chorus
