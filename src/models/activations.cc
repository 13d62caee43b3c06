#include "models/activations.h"

#include <algorithm>

namespace chorus {
namespace {

// Rows that the MLP computes at a time, because its rows are by far the widest of a step. This many rows at a time are
// as fast as all rows at once: reading the MLP's weights once more takes a thousandth of the time of the products.
constexpr int64_t kMlpRows = 1024;

// Elements for each row of the MLP's intermediate values.
int64_t intermediateWidth(const MlpSpec& mlp, int64_t hidden_size) {
  if (mlp.kind == MlpKind::kExperts) return expertsWidth(mlp, hidden_size);
  return (mlp.kind == MlpKind::kGated ? 2 : 1) * mlp.intermediate_size;
}

// Elements for each row of the sums of squares, which are two float32 numbers in memory of any type.
constexpr int64_t kSquares = 4;

// Elements of each buffer.
struct ActivationSizes {
  int64_t residual, hidden, delta, wide, logits, logits_part;

  ActivationSizes(const ModelSpec& spec, const VocabularyShape& vocabulary, bool several_ranks, bool last_stage,
                  int64_t max_rows, int64_t logits_rows) {
    const int64_t widest = std::max(spec.hidden_size, spec.embedding.width);
    int64_t heads = 0, qkv = 0, mlp = 0;
    for (const LayerSpec& layer : spec.layers) {
      heads = std::max(heads, layer.attention.heads.width());
      qkv = std::max(qkv, layer.attention.heads.qkvWidth());
      mlp = std::max(mlp, intermediateWidth(layer.mlp, spec.hidden_size));
    }
    residual = max_rows * spec.hidden_size;
    delta = max_rows * widest;
    hidden = max_rows * std::max({widest, heads, kSquares});
    wide = std::max(max_rows * std::max(qkv, widest), std::min(max_rows, kMlpRows) * mlp);
    logits = last_stage ? logits_rows * (vocabulary.size + vocabulary.added_tokens) : 0;
    logits_part = last_stage && several_ranks ? logits_rows * (vocabulary.head_rows + vocabulary.added_tokens) : 0;
  }
};
}  // namespace

int64_t expertsWidth(const MlpSpec& mlp, int64_t hidden_size) {
  const int64_t workspace = moeWorkspace(1, mlp.top_k, hidden_size, 2 * mlp.intermediate_size);
  return mlp.experts + 1 + std::max(workspace, 2 * mlp.shared_size);
}

DecoderActivations::DecoderActivations(Backend& backend, const ModelSpec& spec, const VocabularyShape& vocabulary,
                                       const RankLinks& links, int64_t max_rows, int64_t logits_rows)
    : type_(backend.activationType()),
      hidden_size_(spec.hidden_size),
      mlp_rows_(std::min(max_rows, kMlpRows)),
      logits_rows_(logits_rows) {
  const ActivationSizes sizes(spec, vocabulary, links.tensor != nullptr, links.lastStage(), max_rows, logits_rows);
  const auto allocate = [&](int64_t count, DType type) {
    return backend.allocate(static_cast<size_t>(count) * dtypeSize(type));
  };
  residual_ = allocate(sizes.residual, type_);
  hidden_ = allocate(sizes.hidden, type_);
  delta_ = allocate(sizes.delta, type_);
  wide_ = allocate(sizes.wide, type_);
  logits_ = allocate(sizes.logits, DType::kFloat32);
  logits_part_ = allocate(sizes.logits_part, DType::kFloat32);
}

int64_t DecoderActivations::bytes(const ModelSpec& spec, const VocabularyShape& vocabulary, DType type, int32_t tp_size,
                                  bool last_stage, int64_t max_rows, int64_t logits_rows) {
  const ActivationSizes sizes(spec, vocabulary, tp_size > 1, last_stage, max_rows, logits_rows);
  return (sizes.residual + sizes.hidden + sizes.delta + sizes.wide) * static_cast<int64_t>(dtypeSize(type)) +
         (sizes.logits + sizes.logits_part) * static_cast<int64_t>(sizeof(float));
}

}  // namespace chorus
