#include "models/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"
#include "models/blocks/attention.h"
#include "models/blocks/embedding.h"
#include "models/blocks/head.h"
#include "models/blocks/mlp.h"
#include "models/blocks/residual_stream.h"

namespace chorus {
namespace {

using testing::HasSubstr;

constexpr int64_t kHidden = 8;
const float kValue = 1;

PackedWeight linear(int64_t out, int64_t in) { return {&kValue, DType::kFloat32, out, in}; }
NormWeights norm(bool bias = false) { return {&kValue, bias ? &kValue : nullptr, kHidden}; }

// The weights of a layer in Llama's form.
SlotWeights layerWeights() {
  SlotWeights layer;
  layer[LinearId::kQkv].weight = linear(16, 8);
  layer[LinearId::kDense].weight = linear(8, 8);
  layer[LinearId::kFc].weight = linear(12, 8);
  layer[LinearId::kProj].weight = linear(8, 6);
  layer[NormId::kAttentionIn] = layer[NormId::kMlpIn] = norm();
  return layer;
}

LayerSpec layerOf(ResidualForm form = ResidualForm::kPre, MlpKind mlp = MlpKind::kGated) {
  return {.attention = {.heads = {.queries = 2, .kv = 1, .size = 4}},
          .mlp = {.kind = mlp, .intermediate_size = 6},
          .residual = form};
}

std::string refusal(const SlotWeights& weights, const LayerSpec& spec = layerOf(), const NormSpec& norms = {}) {
  std::vector<SlotNeed> needs = residualNeeds(spec.residual, norms, kHidden);
  for (const SlotNeed& need : attentionNeeds(spec.attention, kHidden)) needs.push_back(need);
  for (const SlotNeed& need : mlpNeeds(spec.mlp, kHidden)) needs.push_back(need);
  return errorOf([&] { checkSlots(weights, needs, "of layer 0"); });
}

TEST(ModelWeightsTest, LinearsHaveTheShapesOfTheStructure) {
  EXPECT_EQ(refusal(layerWeights()), "");
  SlotWeights weights = layerWeights();
  weights[LinearId::kProj] = {};
  EXPECT_THAT(refusal(weights), HasSubstr("has no linear 3 of layer 0, which the structure needs"));
  weights = layerWeights();
  weights[LinearId::kQkv].weight.out = 24;
  EXPECT_THAT(refusal(weights), HasSubstr("[24, 8], the structure asks for [16, 8]"));
  EXPECT_THAT(refusal(layerWeights(), layerOf(ResidualForm::kPre, MlpKind::kPlain)), HasSubstr("asks for [6, 8]"));
  weights = layerWeights();
  weights[LinearId::kHead].weight = linear(8, 8);
  EXPECT_THAT(refusal(weights), HasSubstr("has linear 4 of layer 0, which the structure does not use"));
}

TEST(ModelWeightsTest, NormsAreThoseOfTheResidualForm) {
  SlotWeights weights = layerWeights();
  weights[NormId::kMlpIn] = {};
  EXPECT_THAT(refusal(weights), HasSubstr("has no norm"));
  EXPECT_EQ(refusal(weights, layerOf(ResidualForm::kParallelShared)), "");
  EXPECT_EQ(refusal(layerWeights(), layerOf(ResidualForm::kParallel)), "");
  weights = layerWeights();
  weights[NormId::kMlpOut] = norm();
  EXPECT_THAT(refusal(weights), HasSubstr("the structure does not use"));
  EXPECT_THAT(refusal(layerWeights(), layerOf(ResidualForm::kSandwich)), HasSubstr("the structure needs"));
  EXPECT_THAT(refusal(layerWeights(), layerOf(ResidualForm::kNormedSum)), HasSubstr("the structure needs"));
  weights = layerWeights();
  weights[NormId::kMlpIn].size = 4;
  EXPECT_THAT(refusal(weights), HasSubstr("[4, 0], the structure asks for [8, 0]"));
}

TEST(ModelWeightsTest, ANormHasABiasOrNot) {
  const NormSpec biased = {.kind = NormKind::kLayerNorm, .bias = true};
  SlotWeights weights = layerWeights();
  EXPECT_THAT(refusal(weights, layerOf(), biased), HasSubstr("no bias of norm"));
  weights[NormId::kAttentionIn] = weights[NormId::kMlpIn] = norm(true);
  EXPECT_EQ(refusal(weights, layerOf(), biased), "");
  EXPECT_THAT(refusal(weights), HasSubstr("has bias of norm"));
}

TEST(ModelWeightsTest, TheHeadNeedsItsNormAndItsRows) {
  SlotWeights outside;
  outside[NormId::kFinal] = norm();
  outside[LinearId::kHead].weight = linear(11, 8);
  ModelSpec spec = {.hidden_size = kHidden, .embedding = {.width = kHidden}};
  const auto check = [&] { return errorOf([&] { checkSlots(outside, headNeeds(spec, 11), "outside layers"); }); };
  EXPECT_EQ(check(), "");
  outside[LinearId::kHead].weight.out = 12;
  EXPECT_THAT(check(), HasSubstr("outside layers [12, 8], the structure asks for [11, 8]"));
}

TEST(ModelWeightsTest, TheEmbeddingMayHaveANormOfItsOwn) {
  SlotWeights outside;
  outside[TableId::kTokens] = {.table = {.data = &kValue, .vocab = 11}, .cols = kHidden};
  ModelSpec spec = {.hidden_size = kHidden, .embedding = {.width = kHidden}};
  const auto check = [&] { return errorOf([&] { checkSlots(outside, embeddingNeeds(spec), "outside layers"); }); };
  EXPECT_EQ(check(), "");
  spec.embedding.norm = true;
  EXPECT_THAT(check(), HasSubstr("has no norm"));
  outside[NormId::kEmbedding] = norm();
  EXPECT_EQ(check(), "");
  spec.embedding.norm = false;
  EXPECT_THAT(check(), HasSubstr("the structure does not use"));
}

TEST(ModelWeightsTest, EveryPointerIsVisitedOnce) {
  ModelWeights weights;
  weights.layers = {layerWeights()};
  weights.layers[0][LinearId::kDense].bias = &kValue;
  weights.outside[TableId::kTokens].table.data = &kValue;
  int set = 0, all = 0;
  weights.forEachPointer([&](auto*& pointer) {
    ++all;
    set += pointer != nullptr;
    pointer = nullptr;
  });
  EXPECT_EQ(set, 8);
  EXPECT_EQ(all, 2 * (2 * kNumLinears + 2 * kNumNorms + kNumTables));
  weights.forEachPointer([](auto*& pointer) { EXPECT_EQ(pointer, nullptr); });
}

}  // namespace
}  // namespace chorus
