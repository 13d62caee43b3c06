#include "models/model_weights.h"

#include <string>

#include "base/error.h"

namespace chorus {
namespace {

class SlotCheck {
 public:
  SlotCheck(const SlotWeights& slots, std::string where) : slots_(slots), where_(std::move(where)) {}

  void needs(LinearId id, int64_t out, int64_t in) const {
    const PackedWeight& weight = slots_[id].weight;
    if (weight.data != nullptr && weight.out == out && weight.in == in) return;
    fail(ErrorCode::kInternal, "the weight table gives linear {} {} [{}, {}], the structure asks for [{}, {}]",
         static_cast<int>(id), where_, weight.out, weight.in, out, in);
  }
  void hasNorm(NormId id, bool expected) const {
    const NormWeights& norm = slots_[id];
    if ((norm.weight != nullptr) == expected && norm.bias == nullptr) return;
    fail(ErrorCode::kInternal, "the weight table has {} norm {} {}, the structure asks for {}",
         norm.weight == nullptr ? "no"
         : norm.bias == nullptr ? "a"
                                : "a biased",
         static_cast<int>(id), where_, expected ? "one without a bias" : "none");
  }

 private:
  const SlotWeights& slots_;
  std::string where_;
};

void checkLayer(const SlotCheck& layer, const LayerSpec& spec, const DecoderShape& shape) {
  layer.needs(LinearId::kQkv, shape.qkvWidth(), shape.hidden_size);
  layer.needs(LinearId::kDense, shape.hidden_size, shape.headsWidth());
  layer.needs(LinearId::kFc, 2 * shape.intermediate_size, shape.hidden_size);
  layer.needs(LinearId::kProj, shape.hidden_size, shape.intermediate_size);
  for (const NormId id : {NormId::kAttentionIn, NormId::kMlpIn}) layer.hasNorm(id, normBefore(spec.residual));
  for (const NormId id : {NormId::kAttentionOut, NormId::kMlpOut}) layer.hasNorm(id, normAfter(spec.residual));
}
}  // namespace

void checkWeights(const ModelWeights& weights, std::span<const LayerSpec> layers, const DecoderShape& shape,
                  bool first_stage, bool last_stage) {
  for (size_t i = 0; i < layers.size(); ++i) {
    checkLayer({weights.layers.at(i), fmt::format("of layer {}", i)}, layers[i], shape);
  }
  const SlotCheck outside(weights.outside, "outside layers");
  if (first_stage && weights.outside[TableId::kTokens].table.data == nullptr) {
    fail(ErrorCode::kInternal, "the weight table has no token embedding");
  }
  if (!last_stage) return;
  outside.hasNorm(NormId::kFinal, true);
  outside.needs(LinearId::kHead, shape.head_rows, shape.hidden_size);
}

}  // namespace chorus
