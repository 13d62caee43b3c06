// A decoder-only network over backend ops: weights, activations, and one step from tokens to logits, on one rank.
#pragma once

#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "kernels/backend.h"
#include "models/adapter_groups.h"
#include "models/layer_spec.h"
#include "models/model_weights.h"
#include "models/step_input.h"

namespace chorus {

// One rank's place among the ranks that run a step together, and its communicators. `tensor` is null without tensor
// parallelism and `pipeline` without pipeline parallelism.
struct RankLinks {
  int32_t rank = 0;                  // among all ranks; index into PreparedAdapter::ranks
  Communicator* tensor = nullptr;    // between the ranks of this stage
  Communicator* pipeline = nullptr;  // between the ranks with the same tp_rank, by stage

  bool firstStage() const { return pipeline == nullptr || pipeline->rank() == 0; }
  bool lastStage() const { return pipeline == nullptr || pipeline->rank() + 1 == pipeline->size(); }
};

// Activations of one step in float32, allocated once: for max_rows rows and, on the last stage, for the logits of
// logits_rows rows at a time.
class DecoderActivations {
 public:
  DecoderActivations(Backend& backend, const DecoderShape& shape, const RankLinks& links, int64_t max_rows,
                     int64_t logits_rows);
  // Number of bytes that the constructor allocates on a rank of a stage with tp_size ranks.
  static int64_t bytes(const DecoderShape& shape, int32_t tp_size, bool last_stage, int64_t max_rows,
                       int64_t logits_rows);

 private:
  friend class Decoder;
  DeviceBuffer residual_;  // [rows, hidden]
  DeviceBuffer hidden_;    // [rows, max(hidden, heads * head_size)]: output of a norm, then of attention
  DeviceBuffer delta_;     // [rows, hidden]: output of a block, to be added to the residual
  DeviceBuffer wide_;      // [rows, qkv width], then [mlp_rows, 2 * intermediate]
  int64_t mlp_rows_ = 0;   // rows that the MLP takes at a time
  int64_t logits_rows_ = 0;
  DeviceBuffer logits_;       // [logits rows, vocab + added tokens]
  DeviceBuffer logits_part_;  // [logits rows, head_rows + added tokens]: this rank's logits, with tensor parallelism
  std::vector<int32_t> each_row_;  // 0, 1, 2, ...: gathers every row
};

class Decoder {
 public:
  // layers: those of this rank's stage. The communicators in links must outlive the decoder. Throws what checkWeights
  // throws.
  Decoder(std::vector<LayerSpec> layers, DecoderShape shape, ModelWeights weights, RopeTable rope, RankLinks links);

  // Receives rows [first, first + logits.rows) of a step's logits, which are in device memory and valid until the
  // function returns.
  using LogitsSink = std::function<void(int64_t first, const ConstMatrix& logits)>;
  // Runs one step, together with the other ranks.
  //   - kv: one for each layer of this stage.
  //   - context: prepared for the same input.
  //   - sink: on every rank of the last stage, it receives the logits of input.logits_rows, logitsWidth() columns each,
  //     in order. Each call has at most as many rows as `activations` holds logits for.
  void run(const StepInput& input, std::span<const KvLayer> kv, DecoderActivations& activations,
           AdapterGroups& adapters, Backend& backend, StepContext& context, Stream stream,
           const LogitsSink& sink) const;

 private:
  // These functions exchange data with other ranks if there are several.
  void embed(const StepInput& input, const Matrix& residual, const Matrix& scratch, AdapterGroups& adapters,
             Backend& backend, StepContext& context, Stream stream) const;
  void sumOverRanks(const Matrix& x, Stream stream) const;
  void receiveFromStageBefore(const Matrix& residual, Stream stream) const;
  void sendToNextStage(const Matrix& residual, Stream stream) const;
  // rows: range of the step's logits rows that `normed` holds.
  ConstMatrix computeLogits(const ConstMatrix& normed, int64_t width, RowRange rows,
                            const DecoderActivations& activations, AdapterGroups& adapters, Backend& backend,
                            StepContext& context, Stream stream) const;

  std::vector<LayerSpec> layers_;
  DecoderShape shape_;
  ModelWeights weights_;
  RopeTable rope_;
  RankLinks links_;
};

}  // namespace chorus
