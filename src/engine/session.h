// A session holds what one rank needs to run steps: weights on the device, KV pool and activations. rank_group.h runs
// the sessions of all ranks.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/adapter_memory.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "kernels/backend.h"
#include "models/adapter_parts.h"
#include "models/adapter_table.h"
#include "models/decoder.h"
#include "models/step_input.h"

namespace chorus {

class BackgroundThrottle;

class AdapterPacker;   // engine/adapter_packer.h
struct Adapter;        // lora/adapter.h
struct AdapterModule;  // lora/adapter.h

struct SessionOptions {
  int32_t max_batch_size = 0;    // sequences in a step; 0: the engine's
  int32_t max_num_tokens = 0;    // rows in a step; 0: the engine's
  int32_t tokens_per_block = 0;  // power of two; 0: the engine's
  // Rows of a step that have logits beside the last row of each sequence; at least tokens_per_block. A step may have
  // more, but their memory is not planned.
  int32_t scored_rows = 128;
  int64_t kv_blocks = 0;  // blocks of the pool, > 0
  // Positions that a query of layer i attends to at most: entry i % size(), > 0. Empty: the model's windows alone.
  std::vector<int32_t> attention_windows;
  // Maximum number of tokens that an adapter adds to the model's vocabulary; 0 in an engine without --lora_plugin.
  int32_t max_added_tokens = 256;
  // A rank's share of an adapter that takes more bytes than this is refused before it is packed.
  int64_t max_adapter_bytes = std::numeric_limits<int64_t>::max();
  // Format of A and B of adapters: the model's type (unset) or int8LoraFormat().
  std::optional<WeightFormat> lora_format{};
};

// Memory of one rank in bytes. kv_cache and activations are exactly what a session allocates from its backend. weights
// is the size of the mapped file, or of its copy in huge pages.
struct SessionMemory {
  int64_t weights = 0;
  int64_t kv_cache = 0;
  int64_t activations = 0;  // including the tables of positions
  int64_t host = 0;         // logits for the sampler
};

class Session {
 public:
  // Allocates everything that a step needs. The communicators in links connect this rank to the others and must outlive
  // the session. Throws Error(kExhausted).
  Session(std::shared_ptr<const Engine> engine, std::shared_ptr<Backend> backend, const SessionOptions& options,
          const RankLinks& links);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The KV cache of all ranks of a model whose sessions have these options; kv_blocks does not count.
  static KvCacheShape kvCache(const ModelConfig& config, const BuildConfig& build, const SessionOptions& options = {});

  // The memory that a session with these options takes.
  static SessionMemory memoryNeeds(const Engine& engine, const SessionOptions& options);
  // Overload for a rank of an engine that is not built yet. weight_bytes: size that the rank's file will have.
  static SessionMemory memoryNeeds(const ModelConfig& config, const BuildConfig& build, int32_t rank,
                                   int64_t weight_bytes, const SessionOptions& options);

  // The adapters that steps of this rank may use.
  AdapterTable& adapters() const { return *adapters_; }

  // Runs this rank's share of one step: copies blocks, embeds, writes keys and values, and computes the logits of
  // input.logits_rows. The result, [logits_rows, logitsWidth(input, vocab_size)] float32 in host memory, is valid until
  // the next run; it is empty on every rank but the first of the last stage. Not thread-safe.
  std::span<const float> run(const StepInput& input);

  // The functions that take a throttle charge it for their work on values; it may be null.
  //
  // Packs this rank's shard of an adapter, as shardAdapter returned it, but with normalised magnitudes. Thread-safe;
  // may run during steps. Throws Error(kTooLarge) for more than max_adapter_bytes.
  std::shared_ptr<const AdapterParts> packAdapter(const Adapter& part, BackgroundThrottle* throttle) const;
  // Number of bytes that packAdapter() uses for this shard.
  int64_t packedBytes(const Adapter& part) const;
  // Returns the squared row norms of W + scale B A of a module of this rank's shard: one sum for each output, over this
  // rank's inputs, with A and B rounded as in the products. For the token embedding, each sum is over this rank's
  // tokens. Thread-safe.
  std::vector<double> squaredRowNorms(const Adapter& part, const AdapterModule& module,
                                      BackgroundThrottle* throttle) const;
  // Removes an embedding table and an output head from this rank's shard if they equal the base's after rounding to the
  // engine's type, because PEFT saves the base's together with an adapter on them. Thread-safe.
  void dropCopiesOfBase(Adapter& part, BackgroundThrottle* throttle) const;

  const Engine& engine() const { return *engine_; }
  const SessionOptions& options() const { return options_; }
  Backend& backend() const { return *backend_; }

 private:
  struct State;
  AdapterPacker adapterPacker() const;
  WeightFormat loraFormat() const { return options_.lora_format.value_or(engine_->config().dtype); }
  // The base's weights in host memory.
  const ModelWeights& baseWeights() const;
  std::shared_ptr<const Engine> engine_;
  WeightTable table_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<AdapterMemory> adapter_memory_;
  SessionOptions options_;
  std::unique_ptr<AdapterTable> adapters_ = std::make_unique<AdapterTable>();
  std::unique_ptr<State> state_;
};

}  // namespace chorus
