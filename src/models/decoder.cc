#include "models/decoder.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace chorus {
namespace {

Matrix view(const DeviceBuffer& buffer, int64_t rows, int64_t cols) { return {buffer.as<float>(), rows, cols, cols}; }

ActivationKind activationKind(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return ActivationKind::kSilu;
    case Activation::kGelu:
      return ActivationKind::kGelu;
    case Activation::kGeluTanh:
      return ActivationKind::kGeluTanh;
    case Activation::kRelu:
      return ActivationKind::kRelu;
  }
  return ActivationKind::kSilu;
}

// Rows that the MLP computes at a time, because its rows are by far the widest of a step. This many rows at a time are
// as fast as all rows at once: reading the MLP's weights once more takes a thousandth of the time of the products.
constexpr int64_t kMlpRows = 1024;

Matrix rowsOf(const Matrix& x, RowRange rows) {
  return {x.data + rows.begin * x.stride, rows.end - rows.begin, x.cols, x.stride};
}

Matrix columnsOf(const Matrix& x, int64_t first, int64_t cols) { return {x.data + first, x.rows, cols, x.stride}; }

// Floats of each buffer of DecoderActivations, in the order of its members.
struct ActivationSizes {
  int64_t residual, hidden, delta, wide, logits, logits_part;

  ActivationSizes(const DecoderShape& shape, bool several_ranks, bool last_stage, int64_t max_rows,
                  int64_t logits_rows) {
    residual = delta = max_rows * shape.hidden_size;
    hidden = max_rows * std::max(shape.hidden_size, shape.headsWidth());
    wide = std::max(max_rows * std::max(shape.qkvWidth(), shape.hidden_size),
                    std::min(max_rows, kMlpRows) * 2 * shape.intermediate_size);
    logits = last_stage ? logits_rows * (shape.vocab_size + shape.added_tokens) : 0;
    logits_part = last_stage && several_ranks ? logits_rows * (shape.head_rows + shape.added_tokens) : 0;
  }
};
}  // namespace

DecoderActivations::DecoderActivations(Backend& backend, const DecoderShape& shape, const RankLinks& links,
                                       int64_t max_rows, int64_t logits_rows) {
  const ActivationSizes sizes(shape, links.tensor != nullptr, links.lastStage(), max_rows, logits_rows);
  const auto floats = [&](int64_t count) { return backend.allocate(static_cast<size_t>(count) * sizeof(float)); };
  residual_ = floats(sizes.residual);
  hidden_ = floats(sizes.hidden);
  delta_ = floats(sizes.delta);
  wide_ = floats(sizes.wide);
  mlp_rows_ = std::min(max_rows, kMlpRows);
  logits_rows_ = logits_rows;
  logits_ = floats(sizes.logits);
  logits_part_ = floats(sizes.logits_part);
  each_row_.resize(static_cast<size_t>(logits_rows));
  std::iota(each_row_.begin(), each_row_.end(), 0);
}

int64_t DecoderActivations::bytes(const DecoderShape& shape, int32_t tp_size, bool last_stage, int64_t max_rows,
                                  int64_t logits_rows) {
  const ActivationSizes sizes(shape, tp_size > 1, last_stage, max_rows, logits_rows);
  return (sizes.residual + sizes.hidden + sizes.delta + sizes.wide + sizes.logits + sizes.logits_part) *
         static_cast<int64_t>(sizeof(float));
}

Decoder::Decoder(std::vector<LayerSpec> layers, DecoderShape shape, ModelWeights weights, RopeTable rope,
                 RankLinks links)
    : layers_(std::move(layers)), shape_(shape), weights_(std::move(weights)), rope_(rope), links_(links) {
  checkWeights(weights_, layers_, shape_, links_.firstStage(), links_.lastStage());
}

// A rank holds the whole table, some of its columns, or some of its rows; in the last case its result is zero for the
// tokens of other ranks.
void Decoder::embed(const StepInput& input, const Matrix& residual, const Matrix& scratch, AdapterGroups& adapters,
                    Backend& backend, StepContext& context, Stream stream) const {
  const auto& [table, cols] = weights_.outside[TableId::kTokens];
  const bool some_columns = cols < shape_.hidden_size;
  const Matrix part = some_columns ? Matrix{scratch.data, scratch.rows, cols, cols} : residual;
  backend.embedding({.table = table, .tokens = input.tokens, .out = part, .groups = adapters.embedding()}, context,
                    stream);
  if (some_columns) {
    links_.tensor->allGatherColumns(part, residual, stream);
  } else if (table.vocab < shape_.vocab_size) {
    sumOverRanks(residual, stream);
  }
}

// Adds up the partial results of the ranks, for example of a linear that is cut along its inputs.
void Decoder::sumOverRanks(const Matrix& x, Stream stream) const {
  if (links_.tensor != nullptr) links_.tensor->allReduceSum(x.data, x.rows * x.cols, stream);
}

void Decoder::receiveFromStageBefore(const Matrix& residual, Stream stream) const {
  links_.pipeline->receive(residual.data, residual.rows * residual.cols, links_.pipeline->rank() - 1, stream);
}

void Decoder::sendToNextStage(const Matrix& residual, Stream stream) const {
  links_.pipeline->send(residual.data, residual.rows * residual.cols, links_.pipeline->rank() + 1, stream);
}

// The columns of this rank's product are its share of the model's vocabulary and then the tokens that adapters add. The
// shares of all ranks are gathered. The added tokens are the same on every rank and are copied behind the gathered
// columns.
ConstMatrix Decoder::computeLogits(const ConstMatrix& normed, int64_t width, RowRange rows,
                                   const DecoderActivations& activations, AdapterGroups& adapters, Backend& backend,
                                   StepContext& context, Stream stream) const {
  const Matrix logits = view(activations.logits_, normed.rows, width);
  const int64_t added = width - shape_.vocab_size;
  const PackedWeight& weight = weights_.outside[LinearId::kHead].weight;
  const int64_t head = weight.out;
  const Matrix part = links_.tensor == nullptr ? logits : view(activations.logits_part_, normed.rows, head + added);
  backend.linear({.x = normed, .weight = weight, .y = part, .groups = adapters.head(rows)}, context, stream);
  if (links_.tensor == nullptr) return logits;
  links_.tensor->allGatherColumns(columnsOf(part, 0, head), columnsOf(logits, 0, shape_.vocab_size), stream);
  if (added > 0) {
    const std::span<const int32_t> each = activations.each_row_;
    backend.gatherRows({.x = columnsOf(part, head, added),
                        .rows = each.first(static_cast<size_t>(normed.rows)),
                        .out = columnsOf(logits, shape_.vocab_size, added)},
                       context, stream);
  }
  return logits;
}

void Decoder::run(const StepInput& input, std::span<const KvLayer> kv, DecoderActivations& activations,
                  AdapterGroups& adapters, Backend& backend, StepContext& context, Stream stream,
                  const LogitsSink& sink) const {
  adapters.begin(input, links_.rank);
  const int64_t width = logitsWidth(input, shape_.vocab_size);
  if (width > shape_.vocab_size + shape_.added_tokens) {
    fail(ErrorCode::kInternal, "a step's adapters add {} tokens, more than the session's {}", width - shape_.vocab_size,
         shape_.added_tokens);
  }
  const auto rows = static_cast<int64_t>(input.tokens.size());

  const Matrix residual = view(activations.residual_, rows, shape_.hidden_size);
  const Matrix normed = view(activations.hidden_, rows, shape_.hidden_size);
  const Matrix attended = view(activations.hidden_, rows, shape_.headsWidth());
  const Matrix delta = view(activations.delta_, rows, shape_.hidden_size);
  const Matrix qkv = view(activations.wide_, rows, shape_.qkvWidth());

  if (links_.firstStage()) {
    embed(input, residual, delta, adapters, backend, context, stream);
  } else {
    receiveFromStageBefore(residual, stream);
  }

  // The output of a block (`pending`) is added to the residual by the same op as the norm before the next block. If
  // that block has no such norm, the op only adds.
  ConstMatrix pending;
  const float* pending_bias = nullptr;
  const auto sumPending = [&](int32_t layer, NormId id) -> ConstMatrix {
    const float* norm = weights_.at(layer)[id].weight;
    if (norm == nullptr && pending.data == nullptr) return residual;
    backend.rmsNorm({.residual = residual,
                     .delta = pending,
                     .bias = pending_bias,
                     .weight = norm,
                     .epsilon = shape_.norm_epsilon,
                     .y = norm == nullptr ? Matrix() : normed,
                     .groups = norm == nullptr ? std::span<const NormGroup>() : adapters.norm(layer, id)},
                    context, stream);
    return norm == nullptr ? residual : normed;
  };
  // Ends a block: sums its output over the ranks, applies the norm after the block if the layer has one, and makes the
  // result `pending`.
  const auto leaveBlock = [&](int32_t layer, LinearId last, NormId id) {
    const float* bias = weights_.at(layer)[last].bias;
    const float* norm = weights_.at(layer)[id].weight;
    sumOverRanks(delta, stream);
    if (norm != nullptr) {
      backend.rmsNorm({.residual = delta,
                       .bias = bias,
                       .weight = norm,
                       .epsilon = shape_.norm_epsilon,
                       .y = delta,
                       .groups = adapters.norm(layer, id)},
                      context, stream);
      bias = nullptr;
    }
    pending = delta;
    pending_bias = bias;
  };
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const SlotWeights& w = weights_.layers[i];
    const auto layer = static_cast<int32_t>(i);
    const RowRange all{0, static_cast<int32_t>(rows)};
    const auto linear = [&](LinearId id, RowRange of, const ConstMatrix& x, const Matrix& y) {
      backend.linear({.x = x, .weight = w[id].weight, .y = y, .groups = adapters.linear(layer, id, of)}, context,
                     stream);
    };

    linear(LinearId::kQkv, all, sumPending(layer, NormId::kAttentionIn), qkv);
    backend.kvWrite(
        {.qkv = qkv, .bias = w[LinearId::kQkv].bias, .num_heads = shape_.num_heads, .rope = rope_, .kv = kv[i]},
        context, stream);
    backend.attention({.q = {qkv.data, rows, shape_.headsWidth(), qkv.stride},
                       .num_heads = shape_.num_heads,
                       .scale = shape_.attention_scale,
                       .kv = kv[i],
                       .out = attended},
                      context, stream);
    linear(LinearId::kDense, all, attended, delta);
    leaveBlock(layer, LinearId::kDense, NormId::kAttentionOut);

    const ConstMatrix mlp_input = sumPending(layer, NormId::kMlpIn);
    for (int64_t first = 0; first < rows; first += activations.mlp_rows_) {
      const RowRange slice{static_cast<int32_t>(first),
                           static_cast<int32_t>(std::min(rows, first + activations.mlp_rows_))};
      const Matrix fc_gate = view(activations.wide_, slice.end - slice.begin, 2 * shape_.intermediate_size);
      // The gated product overwrites the activated half in place: it is elementwise, and this is the widest buffer.
      const Matrix gated{fc_gate.data, fc_gate.rows, shape_.intermediate_size, fc_gate.stride};
      const ConstMatrix x(mlp_input.data + first * mlp_input.stride, fc_gate.rows, mlp_input.cols, mlp_input.stride);
      linear(LinearId::kFc, slice, x, fc_gate);
      backend.gatedActivation({.fc_gate = fc_gate,
                               .bias = w[LinearId::kFc].bias,
                               .kind = activationKind(layers_[i].activation),
                               .out = gated},
                              context, stream);
      linear(LinearId::kProj, slice, gated, rowsOf(delta, slice));
    }
    leaveBlock(layer, LinearId::kProj, NormId::kMlpOut);
  }

  if (!links_.lastStage()) {
    if (pending.data != nullptr) {
      backend.rmsNorm({.residual = residual, .delta = pending, .bias = pending_bias, .y = {}, .groups = {}}, context,
                      stream);
    }
    sendToNextStage(residual, stream);
    return;
  }

  // From here on, only the rows that need logits are computed: the last residual sum, the final norm and the logits.
  const auto wanted = static_cast<int64_t>(input.logits_rows.size());
  const Matrix last = view(activations.hidden_, wanted, shape_.hidden_size);
  const Matrix last_delta = view(activations.wide_, wanted, shape_.hidden_size);
  if (wanted == 0) return;
  backend.gatherRows({.x = residual, .rows = input.logits_rows, .out = last}, context, stream);
  if (pending.data != nullptr) {
    backend.gatherRows({.x = pending, .rows = input.logits_rows, .out = last_delta}, context, stream);
  }
  backend.rmsNorm({.residual = last,
                   .delta = pending.data != nullptr ? ConstMatrix(last_delta) : ConstMatrix(),
                   .bias = pending_bias,
                   .weight = weights_.outside[NormId::kFinal].weight,
                   .epsilon = shape_.norm_epsilon,
                   .y = last_delta,
                   .groups = adapters.finalNorm()},
                  context, stream);
  for (int64_t first = 0; first < wanted; first += activations.logits_rows_) {
    const int64_t rows_now = std::min(activations.logits_rows_, wanted - first);
    const ConstMatrix some(last_delta.data + first * last_delta.stride, rows_now, last_delta.cols, last_delta.stride);
    const RowRange range{static_cast<int32_t>(first), static_cast<int32_t>(first + rows_now)};
    sink(first, computeLogits(some, width, range, activations, adapters, backend, context, stream));
  }
}

}  // namespace chorus
