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
            "Request for LoRA inference must have both lora_weights and lora_keys");
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

TEST(Request, ItsCopiesShareTheBadWords) {
  Request request({1}, 1);
  EXPECT_EQ(request.getBadWords(), std::nullopt);
  request.setBadWords({{2, 3}, {4}});
  const Request copy = request;
  EXPECT_EQ(copy.getBadWords(), (std::list<VecTokens>{{2, 3}, {4}}));
  EXPECT_EQ(&*copy.getBadWords(), &*request.getBadWords());
  Request other({5}, 1);
  other.setBadWordTables(request.getBadWordTables());
  EXPECT_EQ(&*other.getBadWords(), &*request.getBadWords());
}

TEST(Response, ItsCopiesShareTheResult) {
  Result result;
  result.promptLogProbs = VecLogProbs{-1.0f, -2.0f};
  const std::vector<Response> copies(2, Response(1, std::move(result)));
  EXPECT_EQ(&copies[0].getResult(), &copies[1].getResult());
  EXPECT_EQ(copies[1].getResult().promptLogProbs, (VecLogProbs{-1.0f, -2.0f}));
}

// The first 34 parameters of the constructor are in the order of TensorRT-LLM's header.
TEST(Request, TakesThirtyFourPositions) {
  int calls = 0;
  const LogitsPostProcessor processor = [&](IdType, Tensor&, const BeamTokens&, const StreamPtr&,
                                            std::optional<IdType>) { ++calls; };
  const Request request({1, 2}, 5, true, SamplingConfig(), OutputConfig(true), 7, 8, std::vector<SizeType32>{0, 1},
                        std::list<VecTokens>{{3}}, std::list<VecTokens>{{4}, {5, 6}}, Tensor::cpu<float>({9}),
                        ExternalDraftTokensConfig({1}), PromptTuningConfig(Tensor::cpu<float>({2, 3})),
                        MropeConfig(Tensor::cpu<float>({4}), 2), LoraConfig(11), LookaheadDecodingConfig(),
                        KvCacheRetentionConfig(), "name", processor, VecTokens{1}, IdType{12}, true, 0.75f,
                        RequestType::REQUEST_TYPE_CONTEXT_ONLY, ContextPhaseParams({3}, 4, std::nullopt),
                        Tensor::cpu<float>({1}), 13, Tensor::cpu<bool>({1}), 2, EagleConfig(), Tensor::cpu<bool>({2}),
                        GuidedDecodingParams(GuidedDecodingParams::GuideType::kJSON), 14,
                        std::chrono::milliseconds(15));
  EXPECT_EQ(request.getInputTokenIds(), (VecTokens{1, 2}));
  EXPECT_EQ(request.getMaxTokens(), 5);
  EXPECT_EQ(request.getMaxNewTokens(), 5);
  EXPECT_TRUE(request.getStreaming());
  EXPECT_TRUE(request.getOutputConfig().returnLogProbs);
  EXPECT_EQ(request.getEndId(), 7);
  EXPECT_EQ(request.getPadId(), 8);
  EXPECT_EQ(request.getPositionIds()->size(), 2u);
  EXPECT_EQ(request.getBadWords()->size(), 1u);
  EXPECT_EQ(request.getStopWords()->size(), 2u);
  EXPECT_EQ(request.getEmbeddingBias()->getSize(), 9u);
  EXPECT_EQ(request.getExternalDraftTokensConfig()->getTokens().size(), 1u);
  EXPECT_EQ(request.getPromptTuningConfig()->getEmbeddingTable().getShape(), Shape({2, 3}));
  EXPECT_EQ(request.getMropeConfig()->getMRopePositionDeltas(), 2);
  EXPECT_EQ(request.getLoraConfig()->getTaskId(), 11u);
  EXPECT_EQ(request.getLookaheadConfig()->getWindowSize(), 4);
  EXPECT_EQ(request.getKvCacheRetentionConfig()->getDecodeRetentionPriority(), 35);
  EXPECT_EQ(request.getLogitsPostProcessorName(), "name");
  Tensor logits;
  (*request.getLogitsPostProcessor())(1, logits, {}, nullptr, std::nullopt);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(request.getEncoderInputTokenIds()->size(), 1u);
  EXPECT_EQ(request.getClientId(), 12u);
  EXPECT_TRUE(request.getReturnAllGeneratedTokens());
  EXPECT_EQ(request.getPriority(), 0.75f);
  EXPECT_EQ(request.getRequestType(), RequestType::REQUEST_TYPE_CONTEXT_ONLY);
  EXPECT_EQ(request.getContextPhaseParams()->getReqId(), 4u);
  EXPECT_EQ(request.getEncoderInputFeatures()->getSize(), 1u);
  EXPECT_EQ(request.getEncoderOutputLength(), 13);
  EXPECT_EQ(request.getCrossAttentionMask()->getDataType(), DataType::kBOOL);
  EXPECT_EQ(request.getNumReturnSequences(), 2);
  EXPECT_EQ(request.getSamplingConfig().getNumReturnSequences(), 2);
  EXPECT_TRUE(request.getEagleConfig()->isGreedySampling());
  EXPECT_EQ(request.getSkipCrossAttnBlocks()->getSize(), 2u);
  EXPECT_EQ(request.getGuidedDecodingParams()->getGuideType(), GuidedDecodingParams::GuideType::kJSON);
  EXPECT_EQ(request.getLanguageAdapterUid(), 14);
  EXPECT_EQ(request.getAllottedTimeMs(), std::chrono::milliseconds(15));
}

TEST(RequestConfig, PartsAreChecked) {
  EXPECT_THAT(messageOf([] { ExternalDraftTokensConfig({}); }), HasSubstr("tokens.size()"));
  EXPECT_THAT(messageOf([] { ExternalDraftTokensConfig({1, 2}, Tensor::cpu<float>({1, 9})); }), HasSubstr("rows"));
  EXPECT_THAT(messageOf([] { ExternalDraftTokensConfig({1}, std::nullopt, 1.5f); }), HasSubstr("acceptanceThreshold"));
  EXPECT_THAT(messageOf([] { PromptTuningConfig(Tensor::cpu<float>({3})); }), HasSubstr("[taskVocabSize, hiddenSize]"));
  EXPECT_THAT(messageOf([] { LookaheadDecodingConfig(0, 3, 4); }), HasSubstr("lookahead"));
  EXPECT_TRUE(LookaheadDecodingConfig::isLegal(1, 1, 0));
  EXPECT_FALSE(LookaheadDecodingConfig::isLegal(2, 1, 0));
  EXPECT_FALSE(LookaheadDecodingConfig::isLegal(1, 1, 1));
  EXPECT_THAT(messageOf([] { EagleConfig(std::nullopt, true, 2.0f); }), HasSubstr("posteriorThreshold"));
  EXPECT_THAT(messageOf([] { GuidedDecodingParams{GuidedDecodingParams::GuideType::kREGEX}; }),
              HasSubstr("guide string must be provided"));
  using Range = KvCacheRetentionConfig::TokenRangeRetentionConfig;
  EXPECT_THAT(messageOf([] { Range(0, 4, 101); }), HasSubstr("Must be between 0 and 100"));
  EXPECT_THAT(messageOf([] { KvCacheRetentionConfig({Range(4, 9), Range(0, 5)}); }), HasSubstr("overlapping"));
  const KvCacheRetentionConfig retention({Range(5, std::nullopt, 80, std::chrono::milliseconds(9)), Range(0, 3, 70)});
  const auto blocks = retention.getPerBlockRetentionPriorityDuration(2, 9);
  ASSERT_EQ(blocks.size(), 5u);
  EXPECT_EQ(blocks[1].retentionPriority, 70);
  EXPECT_FALSE(blocks[2].retentionPriority);
  EXPECT_EQ(blocks[3].retentionPriority, 80);
  EXPECT_EQ(blocks[4].durationMs, std::chrono::milliseconds(9));
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

TEST(SpeculativeDecodingFastLogitsInfo, StandsInATensor) {
  const SpeculativeDecodingFastLogitsInfo info{.draftRequestId = (uint64_t{7} << 40) + 5, .draftParticipantId = -3};
  const Tensor tensor = info.toTensor();
  EXPECT_EQ(tensor.getDataType(), DataType::kFP32);
  EXPECT_EQ(tensor.getShape(), Shape({1, 4}));
  SpeculativeDecodingFastLogitsInfo read;
  std::memcpy(&read, tensor.getData(), sizeof(read));
  EXPECT_EQ(read.draftRequestId, info.draftRequestId);
  EXPECT_EQ(read.draftParticipantId, info.draftParticipantId);
}

TEST(LookaheadDecodingConfig, KnowsWhatAStepNeeds) {
  const LookaheadDecodingConfig config;
  EXPECT_EQ(config.calculateSpeculativeResource(), std::make_tuple(16, 3, 15, 2));
  EXPECT_EQ(LookaheadDecodingConfig::calculateSpeculativeResourceTuple(1, 1, 0), std::make_tuple(1, 1, 0, 0));
  EXPECT_TRUE(config.isLE(LookaheadDecodingConfig(4, 3, 5)));
  EXPECT_FALSE(config.isLE(LookaheadDecodingConfig(9, 2, 9)));
}

}  // namespace
}  // namespace chorus::executor
