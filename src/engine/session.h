// One rank of an engine, ready to run steps: weights on the device, KV pool, activations. rank_group.h runs them all.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/adapter_memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/adapter_parts.h"
#include "models/decoder.h"
#include "models/step_input.h"

namespace chorus {

struct Adapter;        // lora/adapter.h
struct AdapterModule;  // lora/adapter.h

struct SessionOptions {
  int32_t max_batch_size = 0;    // sequences in a step; 0: the engine's
  int32_t max_num_tokens = 0;    // rows in a step; 0: the engine's
  int32_t tokens_per_block = 0;  // power of two; 0: the engine's
  int64_t kv_blocks = 0;         // blocks of the pool, > 0
  // Tokens that one adapter may have beyond the model's vocabulary; none in an engine without --lora_plugin.
  int32_t max_added_tokens = 256;
};

// Bytes of one rank. kv_cache and activations are what a session allocates of its backend, to the byte; weights are the
// mapped file, or its copy in huge pages.
struct SessionMemory {
  int64_t weights = 0;
  int64_t kv_cache = 0;
  int64_t activations = 0;  // with the rotary tables
  int64_t host = 0;         // logits on their way to the sampler
};

class Session {
 public:
  // Allocates everything a step needs. links: to the other ranks of the engine; what they point to must outlive this.
  // Throws Error(kExhausted).
  Session(std::shared_ptr<const Engine> engine, std::shared_ptr<Backend> backend, const SessionOptions& options,
          const RankLinks& links);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Bytes that one KV block takes over all layers, added up over all ranks.
  static int64_t kvBlockBytes(const ModelConfig& config, int32_t tokens_per_block);

  // What a session with these options takes.
  static SessionMemory memoryNeeds(const Engine& engine, const SessionOptions& options);
  // The same of a rank of an engine that is not built yet, whose rank file will have weight_bytes.
  static SessionMemory memoryNeeds(const ModelConfig& config, const BuildConfig& build, int32_t rank,
                                   int64_t weight_bytes, const SessionOptions& options);

  // Runs this rank's share of one step: embeds, writes keys and values, and computes the logits of input.logits_rows.
  // The result, [logits_rows, logitsWidth(input, vocab_size)] float32 in host memory, is valid until the next run; it
  // is empty on every rank but the first of the last stage. Not thread-safe.
  std::span<const float> run(const StepInput& input);

  // Packs what shardAdapter cut for this rank; magnitudes are normalised already. Thread-safe; may run while steps do.
  std::shared_ptr<const AdapterParts> packAdapter(const Adapter& part) const;
  // The bytes that this takes.
  int64_t packedBytes(const Adapter& part) const;
  // For each output of a module of such a part, the sum over this rank's inputs of (W + scale B A)^2, with A and B
  // rounded as the products use them; of the token embedding over its tokens. Thread-safe.
  std::vector<double> squaredRowNorms(const Adapter& part, const AdapterModule& module) const;
  // Leaves out the embedding table and the output head of such a part where they are, rounded to the engine's type, the
  // base's own: PEFT saves the base's along with an adapter on them. Thread-safe.
  void dropCopiesOfBase(Adapter& part) const;

  const Engine& engine() const { return *engine_; }
  const SessionOptions& options() const { return options_; }
  Backend& backend() const { return *backend_; }

 private:
  struct State;
  // In host memory.
  const ModelWeights& baseWeights() const;
  std::shared_ptr<const Engine> engine_;
  WeightTable table_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<AdapterMemory> adapter_memory_;
  SessionOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace chorus
