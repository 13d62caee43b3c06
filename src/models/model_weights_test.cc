#include "models/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of.h"

namespace chorus {
namespace {

using testing::HasSubstr;

constexpr DecoderShape kShape = {
    .head_rows = 11, .hidden_size = 8, .num_heads = 2, .num_kv_heads = 1, .head_size = 4, .intermediate_size = 6};
const float kValue = 1;

PackedWeight linear(int64_t out, int64_t in) { return {&kValue, DType::kFloat32, out, in}; }

// One layer in Llama's form, on a rank that is both the first and the last stage.
ModelWeights complete() {
  ModelWeights weights;
  weights.layers.resize(1);
  SlotWeights& layer = weights.layers[0];
  layer[LinearId::kQkv].weight = linear(16, 8);
  layer[LinearId::kDense].weight = linear(8, 8);
  layer[LinearId::kFc].weight = linear(12, 8);
  layer[LinearId::kProj].weight = linear(8, 6);
  layer[NormId::kAttentionIn].weight = layer[NormId::kMlpIn].weight = &kValue;
  weights.outside[TableId::kTokens].table.data = &kValue;
  weights.outside[NormId::kFinal].weight = &kValue;
  weights.outside[LinearId::kHead].weight = linear(11, 8);
  return weights;
}

std::string refusal(const ModelWeights& weights, ResidualForm form = ResidualForm::kPre, bool first_stage = true,
                    bool last_stage = true) {
  const LayerSpec layers[] = {{.residual = form}};
  return errorOf([&] { checkWeights(weights, layers, kShape, first_stage, last_stage); });
}

TEST(ModelWeightsTest, TheTableAndTheStructureMustFitTogether) {
  EXPECT_EQ(refusal(complete()), "");
  ModelWeights weights = complete();
  weights.layers[0][LinearId::kProj] = {};
  EXPECT_THAT(refusal(weights), HasSubstr("of layer 0 [0, 0], the structure asks for [8, 6]"));
  weights = complete();
  weights.layers[0][LinearId::kQkv].weight.out = 24;
  EXPECT_THAT(refusal(weights), HasSubstr("[24, 8], the structure asks for [16, 8]"));
  weights = complete();
  weights.layers[0][NormId::kMlpIn] = {};
  EXPECT_THAT(refusal(weights), HasSubstr("has no norm"));
  weights = complete();
  weights.layers[0][NormId::kMlpOut].weight = &kValue;
  EXPECT_THAT(refusal(weights), HasSubstr("the structure asks for none"));
  EXPECT_THAT(refusal(complete(), ResidualForm::kSandwich), HasSubstr("the structure asks for one"));
  weights = complete();
  weights.outside[NormId::kFinal].bias = &kValue;
  EXPECT_THAT(refusal(weights), HasSubstr("a biased norm"));
}

TEST(ModelWeightsTest, StagesNeedTheirEnds) {
  ModelWeights weights = complete();
  weights.outside = {};
  EXPECT_THAT(refusal(weights), HasSubstr("no token embedding"));
  EXPECT_THAT(refusal(weights, ResidualForm::kPre, false), HasSubstr("outside layers"));
  EXPECT_EQ(refusal(weights, ResidualForm::kPre, false, false), "");
}

TEST(ModelWeightsTest, EveryPointerIsVisitedOnce) {
  ModelWeights weights = complete();
  weights.layers[0][LinearId::kDense].bias = &kValue;
  int set = 0, all = 0;
  weights.forEachPointer([&](auto*& pointer) {
    ++all;
    set += pointer != nullptr;
    pointer = nullptr;
  });
  EXPECT_EQ(set, 10);
  EXPECT_EQ(all, 2 * (2 * kNumLinears + 2 * kNumNorms + kNumTables));
  weights.forEachPointer([](auto*& pointer) { EXPECT_EQ(pointer, nullptr); });
}

}  // namespace
}  // namespace chorus
