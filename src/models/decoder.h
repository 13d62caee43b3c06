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
  // layers: of this rank's stage. links must outlive the decoder. Throws as checkWeights does.
  Decoder(std::vector<LayerSpec> layers, DecoderShape shape, ModelWeights weights, RopeTable rope, RankLinks links);

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
  ModelWeights weights_;
  RopeTable rope_;
  RankLinks links_;
};

}  // namespace chorus
