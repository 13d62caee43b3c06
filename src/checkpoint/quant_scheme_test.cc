#include "checkpoint/quant_scheme.h"

#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

const std::string kName = "transformer.layers.0.mlp.fc.weight";

TEST(QuantSchemeTest, AFloatWeightIsOneTensor) {
  const auto tensors = QuantScheme{DType::kBFloat16}.tensors(kName, {6, 64});
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].role, TensorRole::kValues);
  EXPECT_EQ(tensors[0].name, kName);
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{6, 64}));
  EXPECT_EQ(tensors[0].dtype, DType::kBFloat16);
}

TEST(QuantSchemeTest, AQuantisedWeightIsIntegersAndScales) {
  const QuantScheme grouped{{DType::kInt4, 32, DType::kFloat16}};
  const auto tensors = grouped.tensors(kName, {6, 64});
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].role, TensorRole::kIntegers);
  EXPECT_EQ(tensors[0].name, kName);
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(tensors[0].dtype, DType::kInt8);
  EXPECT_EQ(tensors[1].role, TensorRole::kScales);
  EXPECT_EQ(tensors[1].name, "transformer.layers.0.mlp.fc.weights_scaling_factor");
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(tensors[1].dtype, DType::kFloat16);
}

TEST(QuantSchemeTest, ExpertsAreTheFirstDimension) {
  const QuantScheme per_output{{DType::kInt8, 0, DType::kFloat32}};
  const auto tensors = per_output.tensors(kName, {4, 6, 64});
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{4, 6, 64}));
  EXPECT_EQ(tensors[1].name, "transformer.layers.0.mlp.fc.per_channel_scale");
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{4, 6}));
}

TEST(QuantSchemeTest, RefusesWhatItCannotStore) {
  const auto refusal = [](const WeightFormat& format, std::vector<int64_t> shape) {
    return errorOf([&] { QuantScheme{format}.tensors(kName, shape); });
  };
  EXPECT_EQ(refusal({DType::kInt4, 0, DType::kFloat32}, {7, 64}),
            kName + ": 7 rows on a rank cannot be int4, which packs them in pairs; exclude it or use int8");
  EXPECT_EQ(refusal({DType::kInt8, 64, DType::kFloat32}, {6, 96}),
            kName + ": group size 64 does not divide the 96 inputs of a rank");
}

}  // namespace
}  // namespace chorus
