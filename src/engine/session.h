// One rank of an engine, ready to run steps: weights on the device, KV pool, activations.
#pragma once

#include <memory>
#include <span>

#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/adapter_parts.h"
#include "models/step_input.h"

namespace chorus {

struct Adapter;  // lora/adapter.h

struct SessionOptions {
  int32_t max_batch_size = 0;    // sequences in a step; 0: the engine's
  int32_t max_num_tokens = 0;    // rows in a step; 0: the engine's
  int32_t tokens_per_block = 0;  // power of two; 0: the engine's
  int64_t kv_blocks = 0;         // blocks of the pool, > 0
};

class Session {
 public:
  // Allocates everything a step needs. Throws Error(kExhausted).
  Session(std::shared_ptr<const Engine> engine, std::shared_ptr<Backend> backend, const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Bytes that one KV block takes over all of this rank's layers.
  static int64_t kvBlockBytes(const ModelConfig& config, int32_t tokens_per_block);

  // Runs one step: embeds, writes keys and values, and computes the logits of input.logits_rows. The result,
  // [logits_rows, vocab_size] float32 in host memory, is valid until the next run. Not thread-safe.
  std::span<const float> run(const StepInput& input);

  // Packs an adapter for this rank, DoRA magnitudes normalised against the base weights. Thread-safe; may run while
  // steps do. Throws Error(kUnsupported) when the engine was built without --lora_plugin or --dora_plugin.
  std::shared_ptr<const AdapterParts> prepareAdapter(const Adapter& adapter) const;

  const Engine& engine() const { return *engine_; }
  const SessionOptions& options() const { return options_; }
  Backend& backend() const { return *backend_; }

 private:
  struct State;
  // A base linear of a layer, in host memory.
  PackedWeight linearOf(int32_t layer, LinearId linear) const;
  std::shared_ptr<const Engine> engine_;
  std::shared_ptr<Backend> backend_;
  SessionOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace chorus
