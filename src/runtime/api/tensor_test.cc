#include "chorus/tensor.h"

#include <gtest/gtest.h>

#include <cstring>

namespace chorus::executor {
namespace {

TEST(Tensor, IsZeroedSharedAndChecked) {
  Tensor tensor = Tensor::cpu(DataType::kFP16, {2, 3});
  EXPECT_EQ(tensor.getSize(), 6u);
  EXPECT_EQ(tensor.getSizeInBytes(), 12u);
  EXPECT_EQ(tensor.getMemoryType(), MemoryType::kCPU);
  Tensor copy;
  copy = tensor;
  static_cast<char*>(copy.getData())[11] = 5;
  EXPECT_EQ(static_cast<const char*>(tensor.getData())[11], 5);
  EXPECT_EQ(static_cast<const char*>(tensor.getData())[0], 0);
  EXPECT_EQ(copy, tensor);
  EXPECT_NE(tensor.copyToCpu(), tensor);
  const std::int32_t values[] = {7, 8};
  const Tensor of = Tensor::copyOf(DataType::kINT32, values, {2});
  EXPECT_EQ(std::memcmp(of.getData(), values, 8), 0);
  EXPECT_EQ(Tensor::cpu(DataType::kFP32, {0, 4}).getSize(), 0u);
  EXPECT_EQ(Tensor::cpu(DataType::kFP32).getSize(), 1u) << "a scalar";
  EXPECT_FALSE(Tensor());
  EXPECT_EQ(Tensor().getDataType(), DataType::kUNKNOWN);
  EXPECT_EQ(Tensor().getData(), nullptr);
  EXPECT_THROW(Tensor::cpu(DataType::kFP32, {-1}), std::invalid_argument);
  EXPECT_THROW(Tensor::cpu(DataType::kUNKNOWN, {1}), std::invalid_argument);
  EXPECT_THROW(Tensor::cpu(DataType::kFP32, {std::int64_t{1} << 40, std::int64_t{1} << 40}), std::bad_alloc);
}

TEST(Tensor, LooksAtTheCallersBytes) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  Tensor tensor = Tensor::of(values.data(), {2, 3});
  EXPECT_EQ(tensor.getDataType(), DataType::kFP32);
  EXPECT_EQ(tensor.getShape(), Shape({2, 3}));
  EXPECT_EQ(tensor.getData(), values.data());
  EXPECT_FALSE(tensor.ownsData());
  EXPECT_TRUE(tensor.copyToCpu().ownsData());
  values[5] = 9;
  EXPECT_EQ(static_cast<const float*>(tensor.getData())[5], 9);
  const Tensor whole = Tensor::of(values);
  EXPECT_EQ(whole.getShape(), Shape({6}));
  tensor.setZero();
  EXPECT_EQ(values, std::vector<float>(6, 0.0f));
  EXPECT_THROW(tensor.setFrom(Tensor::cpu<float>({7})), std::invalid_argument);
  EXPECT_THROW(Tensor::of(DataType::kFP32, nullptr, {1}), std::invalid_argument);
}

TEST(Tensor, TakesAnothersShapeAndBytes) {
  Tensor tensor = Tensor::cpu<std::int64_t>({2});
  const Tensor shared = tensor;
  std::int64_t values[] = {1, 2, 3, 4};
  tensor.setFrom(Tensor::of(values, {2, 2}));
  EXPECT_EQ(shared.getShape(), Shape({2, 2}));
  EXPECT_EQ(std::memcmp(shared.getData(), values, sizeof(values)), 0);
  tensor.setFrom(Tensor::of(values, {1}));
  EXPECT_EQ(shared.getSizeInBytes(), 8u);
  EXPECT_THROW(tensor.setFrom(Tensor::cpu<float>({1})), std::invalid_argument);
}

TEST(Tensor, HostMemoryHasItsNames) {
  const Tensor tensor = Tensor::cpu<std::uint8_t>({3});
  EXPECT_EQ(Tensor::pinned<float>({1}).getMemoryType(), MemoryType::kCPU_PINNED);
  EXPECT_EQ(Tensor::pooledPinned<bool>({1}).getMemoryType(), MemoryType::kCPU_PINNEDPOOL);
  EXPECT_EQ(Tensor::managed(DataType::kINT8, {1}).getMemoryType(), MemoryType::kUVM);
  EXPECT_EQ(tensor.copyToPinned().getMemoryType(), MemoryType::kCPU_PINNED);
  EXPECT_EQ(tensor.copyToPooledPinned().getSize(), 3u);
  EXPECT_EQ(tensor.copyToManaged().getDataType(), DataType::kUINT8);
  EXPECT_THROW(Tensor::gpu<float>(nullptr, {1}), std::runtime_error);
  EXPECT_THROW(tensor.copyToGpu(nullptr), std::runtime_error);
}

TEST(Shape, HoldsItsExtents) {
  Shape shape;
  EXPECT_TRUE(shape.empty());
  {
    const std::int64_t extents[] = {4, 5};
    shape = Shape(extents, 2);
  }
  EXPECT_EQ(shape.size(), 2u);
  EXPECT_EQ(shape[1], 5);
  std::int64_t product = 1;
  for (const auto extent : shape) product *= extent;
  EXPECT_EQ(product, 20);
}

}  // namespace
}  // namespace chorus::executor
