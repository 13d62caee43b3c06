#include "runtime/config_checks.h"

#include <algorithm>

#include "base/error.h"

namespace chorus {
namespace {

using executor::CommunicationMode;
using executor::DebugConfig;
using executor::DecodingConfig;
using executor::DecodingMode;
using executor::ExecutorConfig;
using executor::KvCacheConfig;
using executor::ModelType;
using executor::ParallelConfig;
using executor::SchedulerConfig;
using executor::SizeType32;

void refuse(bool asked, const char* field, const char* why) {
  if (asked) fail(ErrorCode::kUnsupported, "{} is not supported: {}", field, why);
}

void requirePositive(int64_t value, const char* field) {
  if (value <= 0) fail(ErrorCode::kInvalidArgument, "{} {} must be positive", field, value);
}

void requireNotNegative(int64_t value, const char* field) {
  if (value < 0) fail(ErrorCode::kInvalidArgument, "{} {} must not be negative", field, value);
}

constexpr const char* kLeaveUnset = "leave it unset";
constexpr const char* kOneProcess = "all ranks of an engine run in this process; leave it unset";
constexpr const char* kHostMemory = "KV blocks are already in host memory; leave it unset";

void checkKvCache(const KvCacheConfig& config) {
  for (const SizeType32 window : config.getMaxAttentionWindowVec().value_or(std::vector<SizeType32>())) {
    requirePositive(window, "maxAttentionWindowVec");
  }
  refuse(config.getSinkTokenLength().value_or(0) != 0, "sinkTokenLength", kLeaveUnset);
  refuse(config.getHostCacheSize().value_or(0) != 0, "hostCacheSize of KvCacheConfig", kHostMemory);
  refuse(config.getSecondaryOffloadMinPriority().has_value(), "secondaryOffloadMinPriority", kHostMemory);
  refuse(config.getCrossKvCacheFraction().has_value(), "crossKvCacheFraction", "there is no cross attention");
  refuse(config.getEventBufferMaxSize() != 0, "eventBufferMaxSize", "KV cache events are not supported; leave it 0");
}

void checkScheduler(const SchedulerConfig& config) {
  const auto& dynamic = config.getDynamicBatchConfig();
  if (!dynamic) return;
  refuse(dynamic->getEnableBatchSizeTuning(), "enableBatchSizeTuning", "leave it off");
  refuse(dynamic->getEnableMaxNumTokensTuning(), "enableMaxNumTokensTuning", "leave it off");
}

void checkParallel(const std::optional<ParallelConfig>& config) {
  if (!config) return;
  refuse(config->getCommunicationMode() == CommunicationMode::kORCHESTRATOR, "kORCHESTRATOR",
         "all ranks of an engine run in this process; use kLEADER");
  refuse(config->getDeviceIds().has_value(), "deviceIds", "this build runs on the CPU; leave it unset");
  refuse(config->getParticipantIds().has_value(), "participantIds", kOneProcess);
  refuse(config->getOrchestratorConfig().has_value(), "orchestratorConfig", kOneProcess);
}

void checkDecoding(const std::optional<DecodingConfig>& config) {
  if (!config) return;
  const auto mode = config->getDecodingMode().value_or(DecodingMode::Auto());
  refuse(config->getLookaheadDecodingConfig().has_value(), "lookaheadDecodingConfig", kLeaveUnset);
  refuse(config->getMedusaChoices().has_value(), "medusaChoices", kLeaveUnset);
  refuse(config->getEagleConfig().has_value(), "eagleConfig", kLeaveUnset);
  if (mode != DecodingMode::Auto() && mode != DecodingMode::TopKTopP()) {
    fail(ErrorCode::kUnsupported, "decodingMode {} is not supported: use Auto or TopKTopP", mode.getName());
  }
}

void checkDevice(const ExecutorConfig& config) {
  const auto& knobs = config.getExtendedRuntimePerfKnobConfig();
  refuse(config.getGpuWeightsPercent() != 1.0f, "gpuWeightsPercent", "weight streaming is not supported; leave it 1");
  refuse(knobs.getCudaGraphMode(), "cudaGraphMode", "this build runs on the CPU; leave it off");
  refuse(knobs.getCudaGraphCacheSize() != 0, "cudaGraphCacheSize", "this build runs on the CPU; leave it 0");
  refuse(config.getRecvPollPeriodMs() != 0, "recvPollPeriodMs", "there is no orchestrator; leave it 0");
  const DebugConfig debug = config.getDebugConfig().value_or(DebugConfig());
  refuse(debug != DebugConfig(), "debugConfig", "debug tensors are not supported; leave it unset");
}

}  // namespace

void checkSupported(const ExecutorConfig& config, ModelType model_type) {
  refuse(model_type != ModelType::kDECODER_ONLY, "modelType", "use kDECODER_ONLY");
  checkScheduler(config.getSchedulerConfig());
  checkKvCache(config.getKvCacheConfig());
  checkParallel(config.getParallelConfig());
  checkDecoding(config.getDecodingConfig());
  checkDevice(config);
  refuse(config.getSpecDecConfig().has_value(), "specDecConfig",
         "speculative decoding is not supported; leave it unset");
  refuse(config.getGuidedDecodingConfig().has_value(), "guidedDecodingConfig", kLeaveUnset);
  const auto& outputs = config.getAdditionalModelOutputs();
  refuse(outputs && !outputs->empty(), "additionalModelOutputs", kLeaveUnset);
  refuse(config.getUseVariableBeamWidthSearch(), "useVariableBeamWidthSearch", "leave it off");
  requireNotNegative(config.getIterStatsMaxIterations(), "iterStatsMaxIterations");
  requireNotNegative(config.getRequestStatsMaxIterations(), "requestStatsMaxIterations");
  requirePositive(static_cast<int64_t>(std::min<uint64_t>(config.getMaxSeqIdleMicroseconds(), 1)),
                  "maxSeqIdleMicroseconds");
  if (config.getMaxQueueSize()) requirePositive(*config.getMaxQueueSize(), "maxQueueSize");
}

}  // namespace chorus
