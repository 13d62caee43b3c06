#include "models/decoder.h"

#include <algorithm>
#include <cmath>

namespace chorus {
namespace {

Matrix view(const DeviceBuffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.as<float>(), rows, cols, cols};
}

ActivationKind activationKind(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return ActivationKind::kSilu;
    case Activation::kGelu: return ActivationKind::kGelu;
    case Activation::kGeluTanh: return ActivationKind::kGeluTanh;
    case Activation::kRelu: return ActivationKind::kRelu;
  }
  return ActivationKind::kSilu;
}

// A buffer of a step that wants more rows than any before it.
void grow(DeviceBuffer& buffer, int64_t rows, int64_t cols, Backend& backend) {
  const size_t bytes = static_cast<size_t>(rows * cols) * sizeof(float);
  if (buffer.size() < bytes) buffer = backend.allocate(bytes);
}
}  // namespace

DecoderActivations::DecoderActivations(Backend& backend, const DecoderShape& shape, const RankLinks& links,
                                       int64_t max_rows, int64_t logits_rows) {
  const int64_t qkv = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_size;
  const auto floats = [&](int64_t rows, int64_t cols) {
    return backend.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
  };
  residual_ = floats(max_rows, shape.hidden_size);
  hidden_ = floats(max_rows, std::max(shape.hidden_size, shape.num_heads * shape.head_size));
  delta_ = floats(max_rows, shape.hidden_size);
  wide_ = floats(max_rows, std::max({qkv, 2 * shape.intermediate_size, shape.hidden_size}));
  if (links.lastStage()) logits_ = floats(logits_rows, shape.vocab_size);
}

size_t DecoderActivations::bytes() const {
  return residual_.size() + hidden_.size() + delta_.size() + wide_.size() + logits_.size() + logits_part_.size();
}

// The step's adapter rows as groups of one linear. Adapters without a module there leave no group behind.
std::span<const RowGroup> Decoder::groupsOf(const StepInput& input, int32_t layer, LinearId linear,
                                            std::vector<RowGroup>& groups) const {
  groups.clear();
  for (const AdapterRows& rows : input.adapters) {
    const auto parts = rows.adapter->ranks[static_cast<size_t>(links_.rank)]->at(layer, linear);
    if (!parts.empty()) groups.push_back({rows.ranges, parts});
  }
  return groups;
}

// Each rank holds the whole table, or some of its rows and gives zeros for the others, or some of its columns.
void Decoder::embed(const StepInput& input, const Matrix& residual, const Matrix& scratch, Backend& backend,
                    StepContext& context, Stream stream) const {
  const bool some_columns = weights_.embedding_cols < shape_.hidden_size;
  const Matrix part = some_columns ? Matrix{scratch.data, scratch.rows, weights_.embedding_cols, weights_.embedding_cols}
                                   : residual;
  backend.embedding({.table = weights_.embedding, .dtype = weights_.embedding_dtype, .vocab = weights_.embedding_rows,
                     .first_token = weights_.embedding_first, .tokens = input.tokens, .out = part},
                    context, stream);
  if (some_columns) {
    links_.tensor->allGatherColumns(part, residual, stream);
  } else if (weights_.embedding_rows < shape_.vocab_size) {
    sumOverRanks(residual, stream);
  }
}

// The product of a linear that is cut along its inputs.
void Decoder::sumOverRanks(const Matrix& x, Stream stream) const {
  if (links_.tensor != nullptr) links_.tensor->allReduceSum(x.data, x.rows * x.cols, stream);
}

void Decoder::receiveFromStageBefore(const Matrix& residual, Stream stream) const {
  links_.pipeline->receive(residual.data, residual.rows * residual.cols, links_.pipeline->rank() - 1, stream);
}

void Decoder::sendToNextStage(const Matrix& residual, Stream stream) const {
  links_.pipeline->send(residual.data, residual.rows * residual.cols, links_.pipeline->rank() + 1, stream);
}

ConstMatrix Decoder::computeLogits(const Matrix& normed, DecoderActivations& activations, Backend& backend,
                                   StepContext& context, Stream stream) const {
  grow(activations.logits_, normed.rows, shape_.vocab_size, backend);
  const Matrix logits = view(activations.logits_, normed.rows, shape_.vocab_size);
  Matrix part = logits;
  if (links_.tensor != nullptr) {
    grow(activations.logits_part_, normed.rows, weights_.lm_head.out, backend);
    part = view(activations.logits_part_, normed.rows, weights_.lm_head.out);
  }
  backend.linear({.x = normed, .weight = weights_.lm_head, .y = part, .groups = {}}, context, stream);
  if (links_.tensor != nullptr) links_.tensor->allGatherColumns(part, logits, stream);
  return logits;
}

ConstMatrix Decoder::run(const StepInput& input, std::span<const KvLayer> kv, DecoderActivations& activations,
                         std::vector<RowGroup>& groups, Backend& backend, StepContext& context,
                         Stream stream) const {
  const auto rows = static_cast<int64_t>(input.tokens.size());
  const int64_t heads_width = shape_.num_heads * shape_.head_size;
  const int64_t qkv_width = heads_width + 2 * shape_.num_kv_heads * shape_.head_size;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_size));

  const Matrix residual = view(activations.residual_, rows, shape_.hidden_size);
  const Matrix normed = view(activations.hidden_, rows, shape_.hidden_size);
  const Matrix attended = view(activations.hidden_, rows, heads_width);
  const Matrix delta = view(activations.delta_, rows, shape_.hidden_size);
  const Matrix qkv = view(activations.wide_, rows, qkv_width);
  const Matrix fc_gate = view(activations.wide_, rows, 2 * shape_.intermediate_size);
  // The gated product overwrites the activated half in place: it is elementwise, and this is the widest buffer.
  const Matrix gated{fc_gate.data, rows, shape_.intermediate_size, fc_gate.stride};

  if (links_.firstStage()) {
    embed(input, residual, delta, backend, context, stream);
  } else {
    receiveFromStageBefore(residual, stream);
  }

  // What the previous block adds to the residual is summed by the next norm.
  ConstMatrix pending;
  const float* pending_bias = nullptr;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const DecoderLayerWeights& w = weights_.layers[i];
    const auto layer = static_cast<int32_t>(i);
    const auto linear = [&](LinearId id, const ConstMatrix& x, const PackedWeight& weight, const Matrix& y) {
      backend.linear({.x = x, .weight = weight, .y = y, .groups = groupsOf(input, layer, id, groups)}, context,
                     stream);
    };

    backend.rmsNorm({.residual = residual, .delta = pending, .bias = pending_bias, .weight = w.input_norm,
                     .epsilon = shape_.norm_epsilon, .y = normed},
                    context, stream);
    linear(LinearId::kQkv, normed, w.qkv, qkv);
    backend.ropeCache({.qkv = qkv, .bias = w.qkv_bias, .num_heads = shape_.num_heads, .rope = rope_, .kv = kv[i]},
                      context, stream);
    backend.attention({.q = {qkv.data, rows, heads_width, qkv.stride}, .num_heads = shape_.num_heads, .scale = scale,
                       .kv = kv[i], .out = attended},
                      context, stream);
    linear(LinearId::kDense, attended, w.dense, delta);
    sumOverRanks(delta, stream);

    backend.rmsNorm({.residual = residual, .delta = delta, .bias = w.dense_bias, .weight = w.post_norm,
                     .epsilon = shape_.norm_epsilon, .y = normed},
                    context, stream);
    linear(LinearId::kFcGate, normed, w.fc_gate, fc_gate);
    backend.gatedActivation({.fc_gate = fc_gate, .bias = w.fc_gate_bias,
                             .kind = activationKind(layers_[i].activation), .out = gated},
                            context, stream);
    linear(LinearId::kProj, gated, w.proj, delta);
    sumOverRanks(delta, stream);
    pending = delta;
    pending_bias = w.proj_bias;
  }

  if (!links_.lastStage()) {
    backend.rmsNorm({.residual = residual, .delta = pending, .bias = pending_bias}, context, stream);
    sendToNextStage(residual, stream);
    return {};
  }

  // Only the rows that need logits go on: the last sum, the final norm and the vocabulary product.
  const auto wanted = static_cast<int64_t>(input.logits_rows.size());
  const Matrix last = view(activations.hidden_, wanted, shape_.hidden_size);
  const Matrix last_delta = view(activations.wide_, wanted, shape_.hidden_size);
  if (wanted == 0) return {};
  backend.gatherRows({.x = residual, .rows = input.logits_rows, .out = last}, context, stream);
  if (pending.data != nullptr) {
    backend.gatherRows({.x = pending, .rows = input.logits_rows, .out = last_delta}, context, stream);
  }
  backend.rmsNorm({.residual = last, .delta = pending.data != nullptr ? ConstMatrix(last_delta) : ConstMatrix(),
                   .bias = pending_bias, .weight = weights_.final_norm, .epsilon = shape_.norm_epsilon,
                   .y = last_delta},
                  context, stream);
  return computeLogits(last_delta, activations, backend, context, stream);
}

}  // namespace chorus
