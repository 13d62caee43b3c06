#include "runtime/config_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using namespace executor;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int32_t kMaxSeqLen = 128;

std::string refusal(const ExecutorConfig& config, ModelType type = ModelType::kDECODER_ONLY) {
  return errorOf([&] { checkSupported(config, type); });
}

template <typename Change>
std::string refusalAfter(Change change) {
  ExecutorConfig config;
  change(config);
  const std::string text = refusal(config);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return text;
}

// Names, order and defaults are those of TensorRT-LLM 0.19.
TEST(ExecutorConfig, HasTensorRtLlmsDefaults) {
  const ExecutorConfig config;
  EXPECT_EQ(config.getMaxBeamWidth(), 1);
  EXPECT_EQ(config.getSchedulerConfig().getCapacitySchedulerPolicy(), CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT);
  EXPECT_FALSE(config.getSchedulerConfig().getContextChunkingPolicy());
  EXPECT_FALSE(config.getSchedulerConfig().getDynamicBatchConfig());
  EXPECT_TRUE(config.getEnableChunkedContext());
  EXPECT_TRUE(config.getNormalizeLogProbs());
  EXPECT_EQ(config.getIterStatsMaxIterations(), 1000);
  EXPECT_EQ(config.getRequestStatsMaxIterations(), 0);
  EXPECT_EQ(config.getBatchingType(), BatchingType::kINFLIGHT);
  EXPECT_FALSE(config.getMaxBatchSize() || config.getMaxNumTokens() || config.getParallelConfig());
  EXPECT_FALSE(config.getPeftCacheConfig() || config.getLogitsPostProcessorConfig() || config.getDecodingConfig());
  EXPECT_EQ(config.getGpuWeightsPercent(), 1.0f);
  EXPECT_FALSE(config.getMaxQueueSize() || config.getDebugConfig());
  EXPECT_TRUE(config.getExtendedRuntimePerfKnobConfig().getMultiBlockMode());
  EXPECT_FALSE(config.getExtendedRuntimePerfKnobConfig().getEnableContextFMHAFP32Acc());
  EXPECT_FALSE(config.getExtendedRuntimePerfKnobConfig().getCudaGraphMode());
  EXPECT_EQ(config.getExtendedRuntimePerfKnobConfig().getCudaGraphCacheSize(), 0);
  EXPECT_EQ(config.getRecvPollPeriodMs(), 0);
  EXPECT_EQ(config.getMaxSeqIdleMicroseconds(), 180000000u);
  EXPECT_FALSE(config.getSpecDecConfig() || config.getGuidedDecodingConfig() || config.getAdditionalModelOutputs());
  EXPECT_FALSE(config.getGatherGenerationLogits() || config.getUseVariableBeamWidthSearch());
  EXPECT_EQ(refusal(config), "");

  const KvCacheConfig kv;
  EXPECT_TRUE(kv.getEnableBlockReuse() && kv.getOnboardBlocks());
  EXPECT_TRUE(kv.getEnablePartialReuse() && kv.getCopyOnPartialReuse());
  EXPECT_FALSE(kv.getMaxTokens() || kv.getMaxAttentionWindowVec() || kv.getSinkTokenLength());
  EXPECT_FALSE(kv.getFreeGpuMemoryFraction() || kv.getHostCacheSize() || kv.getCrossKvCacheFraction());
  EXPECT_FALSE(kv.getSecondaryOffloadMinPriority());
  EXPECT_EQ(kv.getEventBufferMaxSize(), 0u);

  const PeftCacheConfig peft;
  EXPECT_EQ(peft.getNumHostModuleLayer(), 0);
  EXPECT_EQ(peft.getNumDeviceModuleLayer(), 0);
  EXPECT_EQ(peft.getOptimalAdapterSize(), 8);
  EXPECT_EQ(peft.getMaxAdapterSize(), 64);
  EXPECT_EQ(peft.getNumPutWorkers() + peft.getNumEnsureWorkers() + peft.getNumCopyStreams(), 3);
  EXPECT_EQ(peft.getMaxPagesPerBlockHost(), 24);
  EXPECT_EQ(peft.getMaxPagesPerBlockDevice(), 8);
  EXPECT_FALSE(peft.getDeviceCachePercent() || peft.getHostCacheSize() || peft.getLoraPrefetchDir());

  const DynamicBatchConfig dynamic;
  EXPECT_FALSE(dynamic.getEnableBatchSizeTuning() || dynamic.getEnableMaxNumTokensTuning());
  EXPECT_EQ(dynamic.getDynamicBatchMovingAverageWindow(), 128);
  EXPECT_EQ(dynamic.getBatchSizeTable().size(), 6u);
}

TEST(ExecutorConfig, TakesItsPositions) {
  const ExecutorConfig config(
      2, SchedulerConfig(CapacitySchedulerPolicy::kSTATIC_BATCH, ContextChunkingPolicy::kEQUAL_PROGRESS),
      KvCacheConfig(false, 512, std::vector<SizeType32>{64}, 4, 0.5f, 1024, false, 0.25f, 50, 16, false, false), false,
      false, 10, 20, BatchingType::kSTATIC, 8, 256, ParallelConfig(), PeftCacheConfig(1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5f),
      LogitsPostProcessorConfig(), DecodingConfig(DecodingMode::TopKTopP()), 0.5f, 30, ExtendedRuntimePerfKnobConfig(),
      DebugConfig(true), 40, 50, SpeculativeDecodingConfig(true),
      GuidedDecodingConfig(GuidedDecodingConfig::GuidedDecodingBackend::kXGRAMMAR),
      std::vector<AdditionalModelOutput>{AdditionalModelOutput("hidden", true)}, true, true);
  EXPECT_EQ(config.getMaxBeamWidth(), 2);
  EXPECT_EQ(config.getSchedulerConfig().getContextChunkingPolicy(), ContextChunkingPolicy::kEQUAL_PROGRESS);
  const KvCacheConfig& kv = config.getKvCacheConfig();
  EXPECT_EQ(kv.getMaxTokens(), 512);
  EXPECT_EQ(kv.getSinkTokenLength(), 4);
  EXPECT_EQ(kv.getHostCacheSize(), 1024u);
  EXPECT_EQ(kv.getSecondaryOffloadMinPriority(), 50);
  EXPECT_EQ(kv.getEventBufferMaxSize(), 16u);
  EXPECT_FALSE(kv.getEnablePartialReuse() || kv.getCopyOnPartialReuse() || kv.getOnboardBlocks());
  EXPECT_EQ(config.getIterStatsMaxIterations(), 10);
  EXPECT_EQ(config.getRequestStatsMaxIterations(), 20);
  EXPECT_EQ(config.getMaxBatchSize(), 8);
  EXPECT_EQ(config.getMaxNumTokens(), 256);
  EXPECT_EQ(config.getPeftCacheConfig()->getMaxPagesPerBlockDevice(), 9);
  EXPECT_EQ(config.getPeftCacheConfig()->getDeviceCachePercent(), 0.5f);
  EXPECT_EQ(config.getMaxQueueSize(), 30);
  EXPECT_EQ(config.getRecvPollPeriodMs(), 40);
  EXPECT_EQ(config.getMaxSeqIdleMicroseconds(), 50u);
  EXPECT_EQ(config.getAdditionalModelOutputs()->at(0).name, "hidden");
  EXPECT_TRUE(config.getUseVariableBeamWidthSearch());

  runtime::RuntimeDefaults defaults;
  defaults.maxAttentionWindowVec = {256};
  const KvCacheConfig filled(true, std::nullopt, std::nullopt, std::nullopt, std::nullopt, std::nullopt, true,
                             std::nullopt, std::nullopt, 0, defaults);
  EXPECT_EQ(filled.getMaxAttentionWindowVec()->at(0), 256);
}

TEST(DecodingMode, KnowsItsFlags) {
  static_assert(DecodingMode::Auto().isAuto() && !DecodingMode::Auto().isUseStopCriteria());
  static_assert(DecodingMode::TopKTopP().isTopKandTopP() && DecodingMode::TopK().isTopKorTopP());
  static_assert(!DecodingMode::TopK().isTopKandTopP() && DecodingMode::TopK().isUseMinP());
  static_assert(!DecodingMode::TopP().useRepetitionPenalty(false).isUseRepetitionPenalty());
  static_assert(DecodingMode::TopP().useRepetitionPenalty(false).isUseOccurrencePenalty());
  static_assert(!DecodingMode::BeamSearch().isUseMinP() && DecodingMode::Eagle().isUseExplicitEosStop());
  EXPECT_STREQ(DecodingMode::Medusa().getName(), "Medusa");
  EXPECT_STREQ(DecodingMode::TopP().getName(), "TopKorTopP");
}

TEST(ConfigChecks, UnsupportedSettingsAreNamed) {
  using Config = ExecutorConfig;
  EXPECT_THAT(refusal(Config(), ModelType::kENCODER_ONLY), StartsWith("modelType"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setGpuWeightsPercent(0.5f); }), StartsWith("gpuWeightsPercent"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setDebugConfig(DebugConfig(true)); }), StartsWith("debugConfig"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setRecvPollPeriodMs(1); }), StartsWith("recvPollPeriodMs"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setSpecDecConfig(SpeculativeDecodingConfig()); }),
              StartsWith("specDecConfig"));
  EXPECT_THAT(refusalAfter([](Config& c) {
                c.setGuidedDecodingConfig(GuidedDecodingConfig(GuidedDecodingConfig::GuidedDecodingBackend::kXGRAMMAR));
              }),
              StartsWith("guidedDecodingConfig"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setAdditionalModelOutputs({{AdditionalModelOutput("x")}}); }),
              StartsWith("additionalModelOutputs"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setUseVariableBeamWidthSearch(true); }),
              StartsWith("useVariableBeamWidthSearch"));
  EXPECT_THAT(refusalAfter([](Config& c) {
                c.setSchedulerConfig(
                    SchedulerConfig(CapacitySchedulerPolicy::kMAX_UTILIZATION, std::nullopt, DynamicBatchConfig(true)));
              }),
              StartsWith("enableBatchSizeTuning"));
  EXPECT_THAT(refusalAfter([](Config& c) {
                c.setParallelConfig(ParallelConfig(CommunicationType::kMPI, CommunicationMode::kORCHESTRATOR));
              }),
              StartsWith("kORCHESTRATOR"));
  EXPECT_THAT(refusalAfter([](Config& c) {
                ParallelConfig parallel;
                parallel.setDeviceIds({0, 1});
                c.setParallelConfig(parallel);
              }),
              StartsWith("deviceIds"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setDecodingConfig(DecodingConfig(DecodingMode::Medusa())); }),
              HasSubstr("Medusa"));
  EXPECT_THAT(refusalAfter([](Config& c) {
                DecodingConfig decoding;
                decoding.enableSeamlessLookaheadDecoding();
                c.setDecodingConfig(decoding);
              }),
              StartsWith("lookaheadDecodingConfig"));
  EXPECT_THAT(refusalAfter([](Config& c) {
                c.setExtendedRuntimePerfKnobConfig(ExtendedRuntimePerfKnobConfig(true, false, true));
              }),
              StartsWith("cudaGraphMode"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.getKvCacheConfigRef().setMaxAttentionWindowVec({200, 0}); }),
              StartsWith("maxAttentionWindowVec"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.getKvCacheConfigRef().setSinkTokenLength(4); }),
              StartsWith("sinkTokenLength"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.getKvCacheConfigRef().setHostCacheSize(1); }),
              StartsWith("hostCacheSize of KvCacheConfig"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.getKvCacheConfigRef().setCrossKvCacheFraction(0.5f); }),
              StartsWith("crossKvCacheFraction"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.getKvCacheConfigRef().setEventBufferMaxSize(1); }),
              StartsWith("eventBufferMaxSize"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setMaxQueueSize(0); }), HasSubstr("maxQueueSize 0"));
  EXPECT_THAT(refusalAfter([](Config& c) { c.setRequestStatsMaxIterations(-1); }),
              HasSubstr("requestStatsMaxIterations -1"));
}

TEST(ConfigChecks, SettingsWithoutEffectAreAccepted) {
  ExecutorConfig config;
  config.setNormalizeLogProbs(false);
  config.setGatherGenerationLogits(true);
  config.setParallelConfig(ParallelConfig());
  config.setDecodingConfig(DecodingConfig(DecodingMode::TopKTopP()));
  config.setExtendedRuntimePerfKnobConfig(ExtendedRuntimePerfKnobConfig(false, true));
  config.setDebugConfig(DebugConfig());
  config.setSchedulerConfig(SchedulerConfig(CapacitySchedulerPolicy::kMAX_UTILIZATION,
                                            ContextChunkingPolicy::kEQUAL_PROGRESS, DynamicBatchConfig()));
  config.setKvCacheConfig(KvCacheConfig(true, 512, std::vector<SizeType32>{kMaxSeqLen}, 0, 0.5f, 0, false, std::nullopt,
                                        std::nullopt, 0, false, false));
  config.setLogitsPostProcessorConfig(LogitsPostProcessorConfig(std::nullopt, std::nullopt, false));
  EXPECT_EQ(refusal(config), "");
}

}  // namespace
}  // namespace chorus
