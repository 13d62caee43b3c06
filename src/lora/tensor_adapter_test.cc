#include "lora/tensor_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/testing/error_of.h"
#include "lora/shard.h"
#include "lora/testing/test_model.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> floats(const std::byte* data, DType dtype, int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(loadAsFloat(data, dtype, static_cast<size_t>(i)));
  return out;
}

class TensorAdapterTest : public testing::Test {
 protected:
  // Two rows: v of layer 1 with DoRA (rank 2, 8 + 4 + 2 values), down of layer 0 (rank 1, 6 + 4 values).
  std::vector<int32_t> config_ = {kAttnV, 1, 2, 1, kMlp4HToH, 0, 1, 0};
  std::vector<int64_t> config_shape_ = {1, 2, 4};
  std::vector<float> weights_ = std::vector<float>(28);
  std::vector<int64_t> weights_shape_ = {1, 2, 14};
  DType config_dtype_ = DType::kInt32;
  int64_t max_rank_ = 0;
  TestModel model_;

  void SetUp() override { std::iota(weights_.begin(), weights_.end(), 0.0f); }

  Adapter read() {
    return readTensorAdapter({DType::kFloat32, weights_shape_, std::as_bytes(std::span(weights_))},
                             {config_dtype_, config_shape_, std::as_bytes(std::span(config_))}, nullptr, "t",
                             {model_.config, model_.table, max_rank_});
  }
  std::string refusal() {
    return errorOf([&] { read(); });
  }
};

TEST_F(TensorAdapterTest, ReadsRowsInAnyOrderAndIgnoresPadding) {
  const Adapter adapter = read();
  ASSERT_EQ(adapter.modules.size(), 2u);
  const AdapterModule& down = adapter.modules[0];
  EXPECT_EQ(down.module_name, "mlp.down_proj");
  EXPECT_EQ(down.scale, 1.0f);
  EXPECT_THAT(floats(down.b, down.dtype, 4), ElementsAre(20, 21, 22, 23));
  const AdapterModule& v = adapter.modules[1];
  EXPECT_EQ(v.layer, 1);
  EXPECT_THAT(floats(v.a, v.dtype, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(floats(v.b, v.dtype, 4), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(v.magnitude, ElementsAre(12, 13));
  EXPECT_TRUE(v.magnitude_is_normalised);
  EXPECT_TRUE(adapter.uses_dora);
}

TEST_F(TensorAdapterTest, ThreeColumnsMeanNoDoraAndTwoDimensionsWillDo) {
  config_ = {kAttnV, 1, 2, kMlp4HToH, 0, 1};
  config_shape_ = {2, 3};
  weights_shape_ = {2, 14};
  EXPECT_FALSE(read().uses_dora);
}

// mlp_gate_up of rank 1 with DoRA: A [1, 4], B [12, 1] and magnitude [12], rows of gate_proj first.
TEST_F(TensorAdapterTest, BothHalvesOfAGatedMlpInOneRow) {
  config_ = {kMlpGateUp, 1, 1, 1};
  config_shape_ = {1, 1, 4};
  weights_shape_ = {1, 1, 28};
  EXPECT_EQ(refusal(), "lora module mlp_gate_up not enabled for this model");
  model_.table.push_back({.name = "transformer.layers.{layer}.mlp.gate.weight",
                          .shape = {6, 4},
                          .slot = slotOf(LinearId::kFc, 6),
                          .shard = {.axis = ShardRule::Axis::kRows},
                          .lora_targets = {{kMlpGate, "mlp.up_proj", 0, 6}}});
  const Adapter adapter = read();
  ASSERT_EQ(adapter.modules.size(), 2u);
  const AdapterModule& gate = adapter.modules[0];
  EXPECT_EQ(gate.module_id, kMlpHTo4H);
  EXPECT_THAT(floats(gate.a, gate.dtype, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(floats(gate.b, gate.dtype, 6), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(gate.magnitude, ElementsAre(16, 17, 18, 19, 20, 21));
  const AdapterModule& up = adapter.modules[1];
  EXPECT_EQ(up.module_id, kMlpGate);
  EXPECT_THAT(floats(up.a, up.dtype, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(floats(up.b, up.dtype, 6), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_THAT(up.magnitude, ElementsAre(22, 23, 24, 25, 26, 27));

  config_ = {kMlpGateUp, 1, 1, 0, kMlpGate, 1, 1, 0};
  config_shape_ = {1, 2, 4};
  weights_shape_ = {1, 2, 14};
  EXPECT_EQ(refusal(), "lora_weights has to few values for mlp_gate_up");
  weights_.resize(32);
  weights_shape_ = {1, 2, 16};
  EXPECT_EQ(refusal(), "lora_keys names module 7 of layer 1 twice");
}

TEST_F(TensorAdapterTest, ModuleIdsThatOnlyChorusHasAreRefused) {
  for (const int32_t id : {kTokenEmbedding, kOutputHead}) {
    config_ = {id, 1, 2, 0, kMlp4HToH, 0, 1, 0};
    EXPECT_EQ(refusal(), "lora module " + std::to_string(id) + " not enabled for this model");
  }
}

TEST_F(TensorAdapterTest, CrossAttentionNeedsADecoderThatHasIt) {
  const char* names[] = {"cross_attn_qkv", "cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_dense"};
  for (int32_t id = 8; id <= 12; ++id) {
    config_ = {id, 1, 2, 0, kMlp4HToH, 0, 1, 0};
    EXPECT_EQ(refusal(), fmt::format("lora module {} not enabled for this model", names[id - 8]));
  }
}

TEST_F(TensorAdapterTest, RefusesInTensorRtLlmsWords) {
  weights_shape_ = {28};
  EXPECT_EQ(refusal(), "Invalid shape for lora_weights tensor");
  weights_shape_ = {2, 1, 14};
  EXPECT_EQ(refusal(), "Expected batch dimension to be 1 for each lora request");
  weights_shape_ = {1, 1, 28};
  EXPECT_EQ(refusal(), "Expected dim1 lora_weights and lora_keys to have the same size");
  weights_shape_ = {1, 2, 14};
  config_shape_ = {8};
  EXPECT_EQ(refusal(), "Invalid shape for lora_keys tensor");
  config_shape_ = {4, 2};
  weights_shape_ = {4, 7};
  EXPECT_EQ(refusal(), "Expected dim2 of lora_keys to have a size in [3, 4]");
  weights_shape_ = {2, 14};
  config_shape_ = {2, 4};
  config_dtype_ = DType::kFloat32;
  EXPECT_EQ(refusal(), "Expected  lora keys to have TYPE_INT32 but was float32");
  config_dtype_ = DType::kInt32;
  max_rank_ = 1;
  EXPECT_EQ(refusal(), "Invalid low_rank (2). low_rank must be smaller than mMaxLowRank (1)");
  max_rank_ = 2;
  EXPECT_EQ(refusal(), "");
  config_[1] = 2;
  EXPECT_THAT(refusal(), HasSubstr("Expected layerId to be in the range [0, numModelLayers)"));
  config_[1] = 1;
  config_[2] = 0;
  EXPECT_THAT(refusal(), HasSubstr("Expected adapterSize to be > 0"));
  config_[2] = INT32_MAX;
  EXPECT_EQ(refusal(), "lora_weights has to few values for attn_v");
  config_[2] = 2;
  config_[0] = 13;
  EXPECT_EQ(refusal(), "lora module moe_h_to_4h not enabled for this model");
  config_[0] = 99;
  EXPECT_EQ(refusal(), "lora module 99 not enabled for this model");
  config_ = {kAttnV, 1, 1, 0, kAttnV, 1, 1, 0};
  EXPECT_THAT(refusal(), HasSubstr("twice"));
}

TEST_F(TensorAdapterTest, ValuesThatAreNotFiniteAreRefusedWhereverTheyAreUsed) {
  const std::vector<float> whole = weights_;
  // First and last value of A, B and the magnitude of row 0, and of A and B of row 1; then row 1's padding.
  for (const size_t at : {0, 7, 8, 11, 12, 13, 14, 19, 20, 23, 24, 27}) {
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      weights_ = whole;
      weights_[at] = bad;
      EXPECT_THAT(refusal(), at < 24 ? HasSubstr("not finite") : HasSubstr("")) << at;
      EXPECT_EQ(refusal().empty(), at >= 24) << at;
    }
  }
}

TEST_F(TensorAdapterTest, RanksGetTheirPartsOfEveryModule) {
  // qkv of layer 0, rank 1: 4 + 8 values; down of layer 1, rank 1: 6 + 4 values and a magnitude of 4.
  config_ = {kAttnQkv, 0, 1, 0, kMlp4HToH, 1, 1, 1};
  const Adapter whole = read();
  model_.config.mapping = {.tp_size = 2, .pp_size = 1};
  const Adapter part = shardAdapter(whole, model_.config, model_.table, 1);
  ASSERT_EQ(part.modules.size(), 2u);
  const AdapterModule& qkv = part.modules[0];
  EXPECT_EQ(qkv.out, 6) << "half of q, the repeated k and v heads whole";
  EXPECT_THAT(floats(qkv.a, qkv.dtype, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(floats(qkv.b, qkv.dtype, 6), ElementsAre(6, 7, 8, 9, 10, 11));
  const AdapterModule& down = part.modules[1];
  EXPECT_EQ(down.in, 3);
  EXPECT_THAT(floats(down.a, down.dtype, 3), ElementsAre(17, 18, 19));
  EXPECT_THAT(floats(down.b, down.dtype, 4), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(down.magnitude, ElementsAre(24, 25, 26, 27));

  model_.config.mapping = {.tp_size = 1, .pp_size = 2};
  const Adapter stage = shardAdapter(whole, model_.config, model_.table, 1);
  ASSERT_EQ(stage.modules.size(), 1u);
  EXPECT_EQ(stage.modules[0].layer, 1);
}

TEST_F(TensorAdapterTest, MagnitudesFollowTheRowsOfB) {
  config_ = {kMlpHTo4H, 0, 1, 1, kAttnV, 1, 1, 0};
  weights_.resize(32);
  std::iota(weights_.begin(), weights_.end(), 0.0f);
  weights_shape_ = {1, 2, 16};
  const Adapter whole = read();
  model_.config.mapping = {.tp_size = 2, .pp_size = 1};
  const Adapter part = shardAdapter(whole, model_.config, model_.table, 1);
  const AdapterModule& fc = part.modules[0];
  EXPECT_EQ(fc.out, 3);
  EXPECT_THAT(floats(fc.b, fc.dtype, 3), ElementsAre(7, 8, 9));
  EXPECT_THAT(fc.magnitude, ElementsAre(13, 14, 15));
}

}  // namespace
}  // namespace chorus
