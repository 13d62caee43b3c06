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

// The step's adapter rows as groups of one linear. Adapters without a module there leave no group behind.
std::span<const RowGroup> groupsOf(const StepInput& input, int32_t layer, LinearId linear,
                                   std::vector<RowGroup>& groups) {
  groups.clear();
  for (const AdapterRows& rows : input.adapters) {
    const auto parts = rows.adapter->at(layer, linear);
    if (!parts.empty()) groups.push_back({rows.ranges, parts});
  }
  return groups;
}
}  // namespace

DecoderActivations::DecoderActivations(Backend& backend, const DecoderShape& shape, int64_t vocab_size,
                                       int64_t max_rows, int64_t logits_rows) {
  const int64_t qkv = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_size;
  const auto floats = [&](int64_t rows, int64_t cols) {
    return backend.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
  };
  residual_ = floats(max_rows, shape.hidden_size);
  hidden_ = floats(max_rows, std::max(shape.hidden_size, shape.num_heads * shape.head_size));
  delta_ = floats(max_rows, shape.hidden_size);
  wide_ = floats(max_rows, std::max({qkv, 2 * shape.intermediate_size, shape.hidden_size}));
  reserveLogits(backend, vocab_size, logits_rows);
}

void DecoderActivations::reserveLogits(Backend& backend, int64_t vocab_size, int64_t logits_rows) {
  const size_t bytes = static_cast<size_t>(logits_rows * vocab_size) * sizeof(float);
  if (logits_.size() < bytes) logits_ = backend.allocate(bytes);
}

size_t DecoderActivations::bytes() const {
  return residual_.size() + hidden_.size() + delta_.size() + wide_.size() + logits_.size();
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

  backend.embedding({.table = weights_.embedding, .dtype = weights_.embedding_dtype, .vocab = weights_.vocab_size,
                     .tokens = input.tokens, .out = residual},
                    context, stream);

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

    backend.rmsNorm({.residual = residual, .delta = delta, .bias = w.dense_bias, .weight = w.post_norm,
                     .epsilon = shape_.norm_epsilon, .y = normed},
                    context, stream);
    linear(LinearId::kFcGate, normed, w.fc_gate, fc_gate);
    backend.gatedActivation({.fc_gate = fc_gate, .bias = w.fc_gate_bias,
                             .kind = activationKind(spec_.layers[i].activation), .out = gated},
                            context, stream);
    linear(LinearId::kProj, gated, w.proj, delta);
    pending = delta;
    pending_bias = w.proj_bias;
  }

  // Only the rows that need logits go on: the last sum, the final norm and the vocabulary product.
  const auto wanted = static_cast<int64_t>(input.logits_rows.size());
  const Matrix last = view(activations.hidden_, wanted, shape_.hidden_size);
  const Matrix last_delta = view(activations.wide_, wanted, shape_.hidden_size);
  activations.reserveLogits(backend, weights_.vocab_size, wanted);
  const Matrix logits = view(activations.logits_, wanted, weights_.vocab_size);
  if (wanted == 0) return logits;
  backend.gatherRows({.x = residual, .rows = input.logits_rows, .out = last}, context, stream);
  if (pending.data != nullptr) {
    backend.gatherRows({.x = pending, .rows = input.logits_rows, .out = last_delta}, context, stream);
  }
  backend.rmsNorm({.residual = last, .delta = pending.data != nullptr ? ConstMatrix(last_delta) : ConstMatrix(),
                   .bias = pending_bias, .weight = weights_.final_norm, .epsilon = shape_.norm_epsilon,
                   .y = last_delta},
                  context, stream);
  backend.linear({.x = last_delta, .weight = weights_.lm_head, .y = logits, .groups = {}}, context, stream);
  return logits;
}

}  // namespace chorus
