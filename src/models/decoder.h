// A decoder-only network over backend ops: weights, activations, and one step from tokens to logits.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "models/layer_spec.h"
#include "models/step_input.h"

namespace chorus {

// Device views of one layer's weights. Norm weights and biases are float32; a bias that is absent is null.
struct DecoderLayerWeights {
  const float* input_norm = nullptr;  // [hidden]
  PackedWeight qkv;                   // [(heads + 2 kv_heads) * head_size, hidden]
  const float* qkv_bias = nullptr;
  PackedWeight dense;                 // [hidden, heads * head_size]
  const float* dense_bias = nullptr;
  const float* post_norm = nullptr;   // [hidden]
  PackedWeight fc_gate;               // [2 * intermediate, hidden]: the activated half first
  const float* fc_gate_bias = nullptr;
  PackedWeight proj;                  // [hidden, intermediate]
  const float* proj_bias = nullptr;
};

struct DecoderWeights {
  const void* embedding = nullptr;  // row-major [vocab, hidden]
  DType embedding_dtype = DType::kFloat32;
  int64_t vocab_size = 0;
  std::vector<DecoderLayerWeights> layers;
  const float* final_norm = nullptr;
  PackedWeight lm_head;             // [vocab, hidden]
};

struct DecoderShape {
  int64_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t intermediate_size = 0;
  float norm_epsilon = 0;
};

// Activations of one step, float32, for max_rows rows; logits for logits_rows rows.
class DecoderActivations {
 public:
  DecoderActivations(Backend& backend, const DecoderShape& shape, int64_t vocab_size, int64_t max_rows,
                     int64_t logits_rows);
  // Grows the logits for a step that wants more rows of them (a request for its context logits does).
  void reserveLogits(Backend& backend, int64_t vocab_size, int64_t logits_rows);
  size_t bytes() const;

 private:
  friend class Decoder;
  DeviceBuffer residual_;  // [rows, hidden]
  DeviceBuffer hidden_;    // [rows, max(hidden, heads * head_size)]: a norm's output, then attention's
  DeviceBuffer delta_;     // [rows, hidden]: what a block adds to the residual
  DeviceBuffer wide_;      // [rows, max(qkv width, 2 * intermediate)]: qkv, then the MLP
  DeviceBuffer logits_;    // [logits rows, vocab]
};

class Decoder {
 public:
  Decoder(ModelSpec spec, DecoderShape shape, DecoderWeights weights, RopeTable rope)
      : spec_(std::move(spec)), shape_(shape), weights_(std::move(weights)), rope_(rope) {}

  // Runs one step and returns logits [input.logits_rows, vocab] in device memory. kv: one per layer. context was
  // prepared for the same input. groups is scratch, reused from step to step.
  ConstMatrix run(const StepInput& input, std::span<const KvLayer> kv, DecoderActivations& activations,
                  std::vector<RowGroup>& groups, Backend& backend, StepContext& context, Stream stream) const;

 private:
  ModelSpec spec_;
  DecoderShape shape_;
  DecoderWeights weights_;
  RopeTable rope_;
};

}  // namespace chorus
