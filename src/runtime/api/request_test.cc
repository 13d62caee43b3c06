#include "chorus/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "chorus/response.h"

namespace chorus::executor {
namespace {

using ::testing::HasSubstr;

template <typename F>
std::string messageOf(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Tensor, IsZeroedSharedAndChecked) {
  Tensor tensor = Tensor::cpu(DataType::kFP16, {2, 3});
  EXPECT_EQ(tensor.getSize(), 6u);
  EXPECT_EQ(tensor.getSizeInBytes(), 12u);
  Tensor copy = tensor;
  static_cast<char*>(copy.getData())[11] = 5;
  EXPECT_EQ(static_cast<const char*>(tensor.getData())[11], 5);
  EXPECT_EQ(static_cast<const char*>(tensor.getData())[0], 0);
  const std::int32_t values[] = {7, 8};
  const Tensor of = Tensor::copyOf(DataType::kINT32, values, {2});
  EXPECT_EQ(std::memcmp(of.getData(), values, 8), 0);
  EXPECT_EQ(Tensor::cpu(DataType::kFP32, {0, 4}).getSize(), 0u);
  EXPECT_FALSE(Tensor());
  EXPECT_THROW(Tensor::cpu(DataType::kFP32, {-1}), std::invalid_argument);
  EXPECT_THROW(Tensor::cpu(DataType::kUNKNOWN, {1}), std::invalid_argument);
  EXPECT_THROW(Tensor::cpu(DataType::kFP32, {std::int64_t{1} << 40, std::int64_t{1} << 40}), std::bad_alloc);
}

TEST(SamplingConfig, ChecksAsTensorRtLlmDoes) {
  EXPECT_EQ(messageOf([] { SamplingConfig config(0); }),
            "Requested value: 0 for beamWidth is invalid. To de-activate beam searching set beamWidth to 1 "
            "instead.");
  SamplingConfig config;
  EXPECT_THAT(messageOf([&] { config.setTopK(-1); }), HasSubstr("Assertion failed: topK.value() >= 0"));
  EXPECT_THAT(messageOf([&] { config.setTopP(0.0f); }), HasSubstr("Assertion failed: topP.value() > 0.f"));
  EXPECT_THAT(messageOf([&] { config.setTopP(1.5f); }), HasSubstr("Assertion failed: topP.value() <= 1.f"));
  EXPECT_THAT(messageOf([&] { config.setTopP(std::nanf("")); }), HasSubstr("topP"));
  EXPECT_THAT(messageOf([&] { config.setTemperature(-0.1f); }), HasSubstr("temperature.value() >= 0.f"));
  EXPECT_THAT(messageOf([&] { config.setMinP(1.1f); }), HasSubstr("minP"));
  EXPECT_FALSE(config.getTopK() || config.getTopP() || config.getTemperature() || config.getMinP());
  EXPECT_THAT(messageOf([] { SamplingConfig(2, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, 3); }),
              HasSubstr("numReturnSequences"));
  EXPECT_THAT(messageOf([] { SamplingConfig(1, {}, {}, {}, {}, {}, {}, {}, {}, {}, 0.0f); }),
              HasSubstr("repetitionPenalty"));
  config.setTopK(4);
  config.setTopP(0.5f);
  EXPECT_EQ(config.getTopK(), 4);
  EXPECT_EQ(config.getTopP(), 0.5f);
}

TEST(SamplingConfig, TheWidestOfTheBeamWidthArrayCounts) {
  const SamplingConfig config(2, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
                              std::vector<SizeType32>{2, 5, 3});
  EXPECT_EQ(config.getBeamWidth(), 5);
}

TEST(LoraConfig, TensorsComeTogether) {
  const Tensor weights = Tensor::cpu(DataType::kFP16, {3, 8}), config = Tensor::cpu(DataType::kINT32, {3, 3});
  EXPECT_EQ(LoraConfig(9).getTaskId(), 9u);
  EXPECT_EQ(messageOf([&] { LoraConfig(1, weights, config); }), "");
  EXPECT_EQ(messageOf([&] {
              LoraConfig(1, Tensor::cpu(DataType::kFP16, {1, 3, 8}), Tensor::cpu(DataType::kINT32, {1, 3, 4}));
            }),
            "");
  EXPECT_EQ(messageOf([&] { LoraConfig(1, weights); }),
            "Request for LoRA inference with lora weights must also have lora config");
  EXPECT_EQ(messageOf([&] { LoraConfig(1, std::nullopt, config); }),
            "Request for LoRA inference with lora config must also have lora weights");
  EXPECT_EQ(messageOf([&] { LoraConfig(1, weights, Tensor::cpu(DataType::kINT64, {3, 3})); }),
            "Expected lora config tensor to have type kINT32");
  EXPECT_EQ(messageOf([&] { LoraConfig(1, weights, Tensor::cpu(DataType::kINT32, {9})); }),
            "Expected config tensor to have 2 dimensions");
  EXPECT_EQ(messageOf([&] { LoraConfig(1, Tensor::cpu(DataType::kFP16, {2, 3, 8}), config); }),
            "Expected weights tensor to have 2 dimensions");
  EXPECT_EQ(messageOf([&] { LoraConfig(1, weights, Tensor::cpu(DataType::kINT32, {2, 3})); }),
            "Expected dim 0 of lora weights and lora config to have the same size");
}

TEST(Request, ChecksItsPromptLengthAndPriority) {
  EXPECT_THAT(messageOf([] { Request({}, 1); }), HasSubstr("inputTokenIds.empty()"));
  EXPECT_THAT(messageOf([] { Request({1}, 0); }), HasSubstr("maxTokens > 0"));
  Request request({1}, 1);
  EXPECT_THAT(messageOf([&] { request.setPriority(1.5f); }), HasSubstr("priority"));
  EXPECT_EQ(request.getPriority(), Request::kDefaultPriority);
}

TEST(Response, HoldsEitherAResultOrAnError) {
  const Response error(3, "no", 7);
  EXPECT_TRUE(error.hasError());
  EXPECT_EQ(error.getErrorMsg(), "no");
  EXPECT_EQ(error.getClientId(), 7u);
  EXPECT_THROW(error.getResult(), std::logic_error);
  const Response result(3, Result{});
  EXPECT_FALSE(result.hasError());
  EXPECT_THROW(result.getErrorMsg(), std::logic_error);
}

}  // namespace
}  // namespace chorus::executor
