#include "runtime/memory_needs.h"

#include "base/error.h"
#include "base/units.h"
#include "runtime/adapter_cache/adapter_sizing.h"
#include "runtime/kv_cache/kv_demand.h"

namespace chorus {
std::string MemoryNeeds::text() const {
  return fmt::format(
      "{:.1f} MiB (weights {:.1f}, KV cache of one sequence of {} tokens {:.1f}, activations {:.1f}, adapters {:.1f})",
      mebibytes(total()), mebibytes(weights), max_seq_len, mebibytes(kv_sequence), mebibytes(activations),
      mebibytes(adapters));
}

void MemoryNeeds::check(int64_t available) const {
  if (fit(available)) return;
  fail(ErrorCode::kExhausted,
       "the model does not fit: it needs {}, and {:.1f} MiB of memory are free; lower --max_seq_len (KV cache), "
       "--max_num_tokens or --max_batch_size (activations), --max_lora_rank or --max_cpu_loras (adapters), or quantise "
       "the weights (serve --quantize, convert --use_weight_only)",
       text(), mebibytes(available));
}

MemoryNeeds leastMemory(const ModelConfig& model, const BuildConfig& build, int64_t weight_bytes,
                        const SessionOptions& options, const executor::PeftCacheConfig& adapters) {
  MemoryNeeds needs;
  needs.weights = weight_bytes;
  needs.max_seq_len = build.max_seq_len;
  for (int32_t rank = 0; rank < model.mapping.worldSize(); ++rank) {
    const SessionMemory of_rank = Session::memoryNeeds(model, build, rank, 0, options);
    needs.activations += of_rank.activations + of_rank.host;
  }
  const KvCacheShape cache = Session::kvCache(model, build, options);
  const KvDemand demand{options.tokens_per_block > 0 ? options.tokens_per_block : build.tokens_per_block,
                        cache.windows};
  const int32_t step_tokens = options.max_num_tokens > 0 ? options.max_num_tokens : build.max_num_tokens;
  needs.kv_sequence = demand.mostBlocks(build.max_seq_len, step_tokens) * cache.block_bytes;
  if (!build.lora_plugin) return needs;
  executor::PeftCacheConfig sized = adapters;
  sized.setDeviceCachePercent(std::nullopt);  // a fraction of memory that is not known yet
  needs.adapters = adapterCapacity(sized, model, build, 0).host.bytes;
  return needs;
}

}  // namespace chorus
