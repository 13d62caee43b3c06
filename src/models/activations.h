// The activations of one step.
#pragma once

#include "kernels/backend.h"
#include "models/model_spec.h"
#include "models/rank_links.h"

namespace chorus {

// The vocabulary on one rank.
struct VocabularyShape {
  int64_t size = 0;          // of the model
  int64_t head_rows = 0;     // rows of the output head on this rank
  int64_t added_tokens = 0;  // maximum number of tokens that an adapter adds to the model's
};

// Activations of one step, allocated once: for max_rows rows and, on the last stage, for the logits of logits_rows rows
// at a time. A function returns a view of the first `rows` rows of its buffer, in the backend's type of activations or,
// for logits and sums of squares, in float32.
class DecoderActivations {
 public:
  // spec: the rank's (rankSpec).
  DecoderActivations(Backend& backend, const ModelSpec& spec, const VocabularyShape& vocabulary, const RankLinks& links,
                     int64_t max_rows, int64_t logits_rows);
  // Number of bytes that the constructor allocates on a rank of a stage with tp_size ranks. type: the backend's type of
  // activations.
  static int64_t bytes(const ModelSpec& spec, const VocabularyShape& vocabulary, DType type, int32_t tp_size,
                       bool last_stage, int64_t max_rows, int64_t logits_rows);

  // Residual and delta, a block's output, have hidden_size columns. `hidden` holds the output of a norm, then the
  // sums of squares of queries and keys, then the output of attention. `wide` holds q, k and v, then the MLP's
  // intermediate values, which are computed for at most mlpRows() rows at a time.
  Matrix residual(int64_t rows) const { return view(residual_, rows, hidden_size_); }
  Matrix delta(int64_t rows) const { return view(delta_, rows, hidden_size_); }
  Matrix delta(int64_t rows, int64_t cols) const { return view(delta_, rows, cols); }
  Matrix hidden(int64_t rows, int64_t cols) const { return view(hidden_, rows, cols); }
  Matrix wide(int64_t rows, int64_t cols) const { return view(wide_, rows, cols); }
  int64_t mlpRows() const { return mlp_rows_; }
  // Sums of squares of queries and keys, in the memory of hidden().
  Matrix squares(int64_t rows) const { return {hidden_.data(), rows, 2, 2}; }

  int64_t logitsRows() const { return logits_rows_; }
  Matrix logits(int64_t rows, int64_t cols) const { return {logits_.data(), rows, cols, cols}; }
  // This rank's part of the logits, if there is tensor parallelism.
  Matrix logitsPart(int64_t rows, int64_t cols) const { return {logits_part_.data(), rows, cols, cols}; }

 private:
  Matrix view(const DeviceBuffer& buffer, int64_t rows, int64_t cols) const {
    return {buffer.data(), rows, cols, cols, type_};
  }

  DType type_;
  int64_t hidden_size_;
  DeviceBuffer residual_, delta_, hidden_, wide_;
  int64_t mlp_rows_ = 0;
  int64_t logits_rows_ = 0;
  DeviceBuffer logits_;       // [logits rows, vocabulary + added tokens]
  DeviceBuffer logits_part_;  // [logits rows, head_rows + added tokens]
};

// Elements for each row of a mixture of experts: the router logits and the shared expert's gate, then the workspace of
// the experts or the input projection of the shared one.
int64_t expertsWidth(const MlpSpec& mlp, int64_t hidden_size);

// Rows [rows.begin, rows.end) of x.
template <typename AnyMatrix>
AnyMatrix rowsOf(const AnyMatrix& x, RowRange rows) {
  return {x.at(rows.begin, 0), rows.end - rows.begin, x.cols, x.stride, x.dtype};
}
inline Matrix columnsOf(const Matrix& x, int64_t first, int64_t cols) {
  return {x.at(0, first), x.rows, cols, x.stride, x.dtype};
}

}  // namespace chorus
