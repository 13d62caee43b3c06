// A decoder-only network over backend ops: weights, activations, and one step from tokens to logits, on one rank.
#pragma once

#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"
#include "models/adapter_groups.h"
#include "models/layer_spec.h"
#include "models/step_input.h"

namespace chorus {

// Device views of one layer's weights. Norm weights and biases are float32; a bias that is absent is null.
struct DecoderLayerWeights {
  // Norms are [hidden]; those that the layer's ResidualForm does not have are null.
  const float* attention_norm = nullptr;
  PackedWeight qkv;  // [(heads + 2 kv_heads) * head_size, hidden]
  const float* qkv_bias = nullptr;
  PackedWeight dense;  // [hidden, heads * head_size]
  const float* dense_bias = nullptr;
  const float* attention_out_norm = nullptr;
  const float* mlp_norm = nullptr;
  PackedWeight fc_gate;  // [2 * intermediate, hidden]: the activated half first
  const float* fc_gate_bias = nullptr;
  PackedWeight proj;  // [hidden, intermediate]
  const float* proj_bias = nullptr;
  const float* mlp_out_norm = nullptr;
};

// Sizes are this rank's: of the layers of its pipeline stage, and its share of what is cut over tensor-parallel ranks.
struct DecoderWeights {
  // First stage: all of the vocabulary or a share of it; embedding_cols of hidden.
  EmbeddingTable embedding;
  int64_t embedding_cols = 0;
  std::vector<DecoderLayerWeights> layers;
  // Last stage.
  const float* final_norm = nullptr;
  PackedWeight lm_head;  // [vocab over tensor-parallel ranks, rounded up; hidden]
};

struct DecoderShape {
  int64_t vocab_size = 0;    // of the model
  int64_t head_rows = 0;     // of lm_head on this rank
  int64_t added_tokens = 0;  // that an adapter may have beyond the model's
  int64_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t intermediate_size = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;  // of the products of queries and keys
};

// Where one rank stands among those that share a step. Null: there is one rank of that kind.
struct RankLinks {
  int32_t rank = 0;                  // of all; which AdapterParts are its own
  Communicator* tensor = nullptr;    // the ranks of this stage
  Communicator* pipeline = nullptr;  // its like on every stage, in the order of stages

  bool firstStage() const { return pipeline == nullptr || pipeline->rank() == 0; }
  bool lastStage() const { return pipeline == nullptr || pipeline->rank() + 1 == pipeline->size(); }
};

// Activations of one step, float32, sized once: for max_rows rows, and on the last stage for logits_rows rows of logits
// at a time.
class DecoderActivations {
 public:
  DecoderActivations(Backend& backend, const DecoderShape& shape, const RankLinks& links, int64_t max_rows,
                     int64_t logits_rows);
  // What the constructor allocates, for a rank of a stage with tp_size ranks.
  static int64_t bytes(const DecoderShape& shape, int32_t tp_size, bool last_stage, int64_t max_rows,
                       int64_t logits_rows);

 private:
  friend class Decoder;
  DeviceBuffer residual_;  // [rows, hidden]
  DeviceBuffer hidden_;    // [rows, max(hidden, heads * head_size)]: a norm's output, then attention's
  DeviceBuffer delta_;     // [rows, hidden]: what a block adds to the residual
  DeviceBuffer wide_;      // [rows, qkv width], then [mlp_rows, 2 * intermediate]
  int64_t mlp_rows_ = 0;   // rows that the MLP takes at a time
  int64_t logits_rows_ = 0;
  DeviceBuffer logits_;       // [logits rows, vocab and added tokens]
  DeviceBuffer logits_part_;  // [logits rows, lm_head's rows and added tokens]: this rank's logits, with several ranks
  std::vector<int32_t> each_row_;  // 0, 1, 2 and so on
};

class Decoder {
 public:
  // layers: of this rank's stage. links must outlive the decoder.
  Decoder(std::vector<LayerSpec> layers, DecoderShape shape, DecoderWeights weights, RopeTable rope, RankLinks links)
      : layers_(std::move(layers)), shape_(shape), weights_(std::move(weights)), rope_(rope), links_(links) {}

  // Takes rows [first, first + logits.rows) of a step's logits, in device memory until it returns.
  using LogitsSink = std::function<void(int64_t first, const ConstMatrix& logits)>;
  // Runs one step, together with the other ranks. On every rank of the last stage the sink gets the logits of
  // input.logits_rows, [.., logitsWidth(input, vocab)], in order and in as many pieces as the activations' room for
  // logits asks for. kv: one per layer. context was prepared for the same input.
  void run(const StepInput& input, std::span<const KvLayer> kv, DecoderActivations& activations,
           AdapterGroups& adapters, Backend& backend, StepContext& context, Stream stream,
           const LogitsSink& sink) const;

 private:
  // What ranks do for each other; with one rank, nothing.
  void embed(const StepInput& input, const Matrix& residual, const Matrix& scratch, AdapterGroups& adapters,
             Backend& backend, StepContext& context, Stream stream) const;
  void sumOverRanks(const Matrix& x, Stream stream) const;
  void receiveFromStageBefore(const Matrix& residual, Stream stream) const;
  void sendToNextStage(const Matrix& residual, Stream stream) const;
  // rows: of the step's logits.
  ConstMatrix computeLogits(const ConstMatrix& normed, int64_t width, RowRange rows,
                            const DecoderActivations& activations, AdapterGroups& adapters, Backend& backend,
                            StepContext& context, Stream stream) const;

  std::vector<LayerSpec> layers_;
  DecoderShape shape_;
  DecoderWeights weights_;
  RopeTable rope_;
  RankLinks links_;
};

}  // namespace chorus
