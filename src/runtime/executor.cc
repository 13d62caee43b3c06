// The public Executor: loads an engine, sizes its caches and passes requests to ExecutorCore.
#include "chorus/executor.h"

#include <algorithm>
#include <atomic>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/rank_group.h"
#include "runtime/adapter_cache/adapter_sizing.h"
#include "runtime/config_checks.h"
#include "runtime/engine_adapters.h"
#include "runtime/executor_core.h"
#include "runtime/kv_cache/kv_budget.h"
#include "runtime/lora_prefetch.h"
#include "runtime/memory_needs.h"
#include "runtime/memory_plan.h"

namespace chorus::executor {
namespace {

// The engine's limit, or the lower one of the configuration.
SizeType32 limitOf(const std::optional<SizeType32>& asked, SizeType32 engine, const char* field, const char* flag) {
  if (!asked) return engine;
  if (*asked <= 0) fail(ErrorCode::kInvalidArgument, "{} {} must be positive", field, *asked);
  if (*asked > engine) {
    fail(ErrorCode::kInvalidArgument, "{} {} is larger than the engine's {} {}", field, *asked, flag, engine);
  }
  return *asked;
}

// Replaces spdlog's default logger, because a library should not write to its client's standard output. A logger that
// the client or the program installed is kept.
void logToStandardError() {
  const auto logger = log::default_logger();
  if (logger != nullptr && logger->name().empty()) initLogging("info");
}

void check(const ExecutorConfig& config, ModelType model_type, const Engine& engine) {
  checkSupported(config, model_type);
  if (config.getMaxBeamWidth() <= 0 || config.getMaxBeamWidth() > engine.buildConfig().max_beam_width) {
    fail(ErrorCode::kInvalidArgument, "maxBeamWidth {} is not within the engine's max_beam_width {}",
         config.getMaxBeamWidth(), engine.buildConfig().max_beam_width);
  }
}

BackendOptions backendOptions(const ExecutorConfig& config) {
  BackendOptions options;
  options.name = config.getBackend();
  options.threads = config.getNumThreads();
  if (config.getIsa()) options.isa = requireIsa(*config.getIsa());
  options.import_in_background = config.getImportWeightsInBackground();
  return options;
}

int64_t weightBytes(std::span<const std::shared_ptr<const Engine>> engines) {
  int64_t bytes = 0;
  for (const auto& engine : engines) bytes += static_cast<int64_t>(engine->weightBytes());
  return bytes;
}

PeftCacheConfig peftConfig(const ExecutorConfig& config) {
  return config.getPeftCacheConfig().value_or(PeftCacheConfig());
}

// Options from the engine and the configuration that do not depend on the available memory.
CoreOptions coreOptions(const ExecutorConfig& config, const Engine& engine) {
  const BuildConfig& build = engine.buildConfig();
  CoreOptions core;
  auto& scheduler = core.scheduler;
  scheduler.policy = config.getBatchingType() == BatchingType::kSTATIC
                         ? CapacitySchedulerPolicy::kSTATIC_BATCH
                         : config.getSchedulerConfig().getCapacitySchedulerPolicy();
  scheduler.chunking_policy =
      config.getSchedulerConfig().getContextChunkingPolicy().value_or(ContextChunkingPolicy::kFIRST_COME_FIRST_SERVED);
  scheduler.chunked_context = config.getEnableChunkedContext();
  scheduler.max_batch_size = limitOf(config.getMaxBatchSize(), build.max_batch_size, "maxBatchSize", "max_batch_size");
  scheduler.max_num_tokens = limitOf(config.getMaxNumTokens(), build.max_num_tokens, "maxNumTokens", "max_num_tokens");
  scheduler.kv.tokens_per_block = build.tokens_per_block;
  scheduler.max_scored_rows = std::max(SessionOptions().scored_rows, build.tokens_per_block);
  const bool may_chunk = scheduler.chunked_context || scheduler.policy == CapacitySchedulerPolicy::kMAX_UTILIZATION;
  if (may_chunk && scheduler.max_num_tokens < std::min(scheduler.kv.tokens_per_block, build.max_seq_len)) {
    fail(ErrorCode::kInvalidArgument,
         "maxNumTokens {} is less than tokens_per_block {}: raise it, because chunks of a context are whole blocks",
         scheduler.max_num_tokens, scheduler.kv.tokens_per_block);
  }
  core.requests = {build.max_input_len,
                   build.max_seq_len,
                   scheduler.max_num_tokens,
                   config.getMaxBeamWidth(),
                   static_cast<int32_t>(engine.config().vocab_size),
                   scheduler.chunked_context,
                   build.lora_plugin ? SessionOptions().max_added_tokens : 0};
  core.block_reuse = config.getKvCacheConfig().getEnableBlockReuse();
  core.reuse_scope = config.getKvCacheConfig().getReuseScope();
  core.max_queue_size = config.getMaxQueueSize();
  core.fairness = config.getWeightedFairness() ? Fairness::kWeighted : Fairness::kTurns;
  core.iter_stats_max = config.getIterStatsMaxIterations();
  core.request_stats_max = config.getRequestStatsMaxIterations();
  core.static_batching = config.getBatchingType() == BatchingType::kSTATIC;
  core.logits_post_processors = config.getLogitsPostProcessorConfig();
  core.sampler_threads = config.getNumThreads() > 0 ? config.getNumThreads() : availableCores();
  const WeightFormat lora_format = loraFormat(peftConfig(config)).value_or(engine.config().dtype);
  core.adapter_row_bytes = packedRowBytes(engine.packer(), lora_format, engine.config().mapping.tp_size);
  return core;
}

class RankRunner : public StepRunner {
 public:
  RankRunner(std::vector<std::shared_ptr<const Engine>> engines, const BackendOptions& backend,
             const SessionOptions& options)
      : ranks(std::move(engines), backend, options) {}
  void placeStepThread() override { ranks.placeStepThread(); }
  std::span<const float> run(const StepInput& input) override {
    const Running now(running_);
    return ranks.run(input);
  }
  std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms) override {
    return ranks.composeAdapters(terms);
  }
  // Thread-safe.
  bool running() const { return running_.load(std::memory_order_relaxed); }
  RankGroup ranks;

 private:
  struct Running {
    explicit Running(std::atomic<bool>& flag) : flag_(flag) { flag_.store(true, std::memory_order_relaxed); }
    ~Running() { flag_.store(false, std::memory_order_relaxed); }
    std::atomic<bool>& flag_;
  };
  std::atomic<bool> running_ = false;
};

}  // namespace

class Executor::Impl {
 public:
  Impl(const std::filesystem::path& engine_dir, ModelType model_type, const ExecutorConfig& config) {
    logToStandardError();
    auto engines = RankGroup::loadEngines(engine_dir);
    const Engine& engine = *engines.front();
    check(config, model_type, engine);
    CoreOptions options = coreOptions(config, engine);
    SessionOptions session_options;
    session_options.max_batch_size = options.scheduler.max_batch_size;
    session_options.max_num_tokens = options.scheduler.max_num_tokens;
    session_options.tokens_per_block = options.scheduler.kv.tokens_per_block;
    session_options.attention_windows =
        config.getKvCacheConfig().getMaxAttentionWindowVec().value_or(std::vector<SizeType32>());
    session_options.lora_format = loraFormat(peftConfig(config));
    for (const auto& engine : engines) {
      options.base_bytes += static_cast<int64_t>(engine->stepBytes(options.scheduler.max_batch_size));
    }
    sizeCaches(config, engines, session_options, options);
    memory_.check();
    auto runner = std::make_unique<RankRunner>(std::move(engines), backendOptions(config), session_options);
    const auto clock = [&steps = *runner] { return ThrottleClock::ofThisThread([&steps] { return steps.running(); }); };
    adapters_ = std::make_unique<EngineAdapters>(runner->ranks, clock, static_cast<size_t>(memory_.loads));
    core_ = std::make_unique<ExecutorCore>(options, std::move(runner),
                                           [this](const AdapterSource& source) { return adapters_->load(source); });
    if (config.getPeftCacheConfig() && config.getPeftCacheConfig()->getLoraPrefetchDir()) {
      prefetched_ = prefetchedAdapters(*config.getPeftCacheConfig()->getLoraPrefetchDir(), options.adapter_row_bytes);
      for (const auto& [task_id, source] : prefetched_) core_->registerAdapter(task_id, source);
    }
    log::info("engine ready: {} KV blocks of {} tokens, at most {} requests and {} tokens a step",
              options.scheduler.kv_blocks, options.scheduler.kv.tokens_per_block, options.scheduler.max_batch_size,
              options.scheduler.max_num_tokens);
  }

  ExecutorCore& core() { return *core_; }
  const EngineAdapters& adapters() const { return *adapters_; }
  const MemoryPlan& memory() const { return memory_; }

 private:
  // Sizes the adapter cache first, then the KV cache from what weights, activations and adapters leave.
  void sizeCaches(const ExecutorConfig& config, std::span<const std::shared_ptr<const Engine>> engines,
                  SessionOptions& session, CoreOptions& options) {
    const Engine& engine = *engines.front();
    const auto free_bytes = static_cast<int64_t>(availableMemory());
    const PeftCacheConfig peft = peftConfig(config);
    const int64_t free_for_caches = free_bytes - planMemory(engines, session, {}, free_bytes).total();
    const MemoryNeeds needs = leastMemory(engine.config(), engine.buildConfig(), weightBytes(engines), session, peft);
    needs.check(free_bytes);
    // An adapter cache without a configured size takes a quarter of this. The second term of the minimum leaves room
    // for the KV blocks of one sequence.
    const int64_t free_for_adapters = std::min(free_for_caches, 4 * (free_for_caches - needs.kv_sequence));
    const AdapterCapacity adapters = adapterCapacity(peft, engine, free_for_adapters);
    const AdapterBytes for_adapters{.cache = adapters.host.bytes, .loads = adapters.loads};
    options.adapter_host_capacity = adapters.host;
    session.max_adapter_bytes = adapters.host.bytes;
    options.adapter_pin_capacity = adapters.pinned;
    options.reject_when_full = peft.getRejectWhenFull();
    options.scheduler.adapter_budget = adapters.device;
    options.adapter_workers = peft.getNumPutWorkers();
    const KvCacheShape cache = Session::kvCache(engine.config(), engine.buildConfig(), session);
    options.scheduler.kv.windows = cache.windows;
    KvBudget budget;
    budget.block_bytes = cache.block_bytes;
    budget.demand = options.scheduler.kv;
    budget.max_batch_size = options.scheduler.max_batch_size;
    budget.max_num_tokens = options.scheduler.max_num_tokens;
    budget.max_seq_len = options.requests.max_seq_len;
    budget.max_tokens = config.getKvCacheConfig().getMaxTokens();
    budget.fraction = config.getKvCacheConfig().getFreeGpuMemoryFraction();
    budget.free_bytes = free_bytes - planMemory(engines, session, for_adapters, free_bytes).total();
    options.scheduler.kv_blocks = kvBlocks(budget);
    session.kv_blocks = options.scheduler.kv_blocks;
    memory_ = planMemory(engines, session, for_adapters, free_bytes);
    options.kv_block_bytes = budget.block_bytes;
  }

  MemoryPlan memory_;
  std::map<uint64_t, std::shared_ptr<const AdapterSource>> prefetched_;  // owned here: reloaded after eviction
  std::unique_ptr<EngineAdapters> adapters_;
  std::unique_ptr<ExecutorCore> core_;  // last, because its threads use adapters_
};

Executor::Executor(const std::filesystem::path& modelPath, ModelType modelType, const ExecutorConfig& executorConfig)
    : impl_(std::make_unique<Impl>(modelPath, modelType, executorConfig)) {}

Executor::Executor(const std::filesystem::path&, const std::filesystem::path&, ModelType, const ExecutorConfig&) {
  fail(ErrorCode::kUnsupported, "encoder-decoder models are not supported");
}

Executor::Executor(const BufferView&, const std::string&, ModelType, const ExecutorConfig&,
                   const std::optional<std::map<std::string, Tensor>>&) {
  fail(ErrorCode::kUnsupported, "loading an engine from memory is not supported: pass the engine's directory");
}

Executor::Executor(const BufferView&, const std::string&, const BufferView&, const std::string&, ModelType,
                   const ExecutorConfig&) {
  fail(ErrorCode::kUnsupported, "encoder-decoder models are not supported");
}

Executor::~Executor() = default;
Executor::Executor(Executor&&) noexcept = default;
Executor& Executor::operator=(Executor&&) noexcept = default;

const char* version() noexcept { return CHORUS_VERSION; }

IdType Executor::enqueueRequest(const Request& request) { return impl_->core().enqueue({&request, 1}, nullptr)[0]; }

IdType Executor::enqueueRequest(const Request& request, ResponseCallback callback) {
  return impl_->core().enqueue({&request, 1}, callback)[0];
}

std::vector<IdType> Executor::enqueueRequests(const std::vector<Request>& requests) {
  return impl_->core().enqueue(requests, nullptr);
}

std::vector<IdType> Executor::enqueueRequests(const std::vector<Request>& requests, ResponseCallback callback) {
  return impl_->core().enqueue(requests, callback);
}

std::vector<Response> Executor::awaitResponses(const std::optional<std::chrono::milliseconds>& timeout) {
  return impl_->core().responses().awaitAny(timeout);
}

std::vector<Response> Executor::awaitResponses(const IdType& requestId,
                                               const std::optional<std::chrono::milliseconds>& timeout) {
  return impl_->core().responses().awaitOne(requestId, timeout);
}

std::vector<std::vector<Response>> Executor::awaitResponses(const std::vector<IdType>& requestIds,
                                                            const std::optional<std::chrono::milliseconds>& timeout) {
  return impl_->core().responses().awaitEach(requestIds, timeout);
}

SizeType32 Executor::getNumResponsesReady(const std::optional<IdType>& requestId) const {
  return impl_->core().responses().numReady(requestId);
}

void Executor::cancelRequest(IdType requestId) { impl_->core().cancel(requestId); }

void Executor::shutdown() { impl_->core().shutdown(); }

bool Executor::canEnqueueRequests() const { return impl_->core().acceptsRequests(); }

bool Executor::isParticipant() const { return true; }

std::deque<IterationStats> Executor::getLatestIterationStats() { return impl_->core().takeStats(); }

std::deque<RequestStatsPerIteration> Executor::getLatestRequestStats() { return impl_->core().takeRequestStats(); }

std::deque<DebugTensorsPerIteration> Executor::getLatestDebugTensors() { return {}; }

std::optional<std::shared_ptr<KVCacheEventManager>> Executor::getKVCacheEventManager() const { return std::nullopt; }

void Executor::registerAdapter(IdType taskId, const std::filesystem::path& adapter, AdapterContentCallback onContent) {
  impl_->core().registerAdapter(taskId, impl_->adapters().fileSource(adapter, std::move(onContent)));
}

void Executor::registerAdapter(IdType taskId, AdapterFiles files) {
  impl_->core().registerAdapter(taskId, impl_->adapters().fileSource(std::move(files)));
}

AdapterReport Executor::inspectAdapter(const AdapterFiles& files) const { return impl_->adapters().inspect(files); }

void Executor::loadAdapter(IdType taskId, bool pin, AdapterLoadedCallback loaded) {
  impl_->core().loadAdapter(taskId, pin, std::move(loaded));
}

void Executor::unpinAdapter(IdType taskId) { impl_->core().unpinAdapter(taskId); }

void Executor::moveAdapterPin(IdType from, IdType to) { impl_->core().moveAdapterPin(from, to); }

void Executor::unregisterAdapter(IdType taskId) { impl_->core().unregisterAdapter(taskId); }

SizeType32 Executor::getMaxInputLen() const { return impl_->core().options().requests.longestPrompt(); }
SizeType32 Executor::getMaxSeqLen() const { return impl_->core().options().requests.max_seq_len; }
SizeType32 Executor::getMaxBatchSize() const { return impl_->core().options().scheduler.max_batch_size; }
MemoryUse Executor::getMemoryUse() const {
  const MemoryPlan& memory = impl_->memory();
  return {memory.weights(), memory.kvCache(), memory.activations(),
          memory.adapters,  memory.available, static_cast<SizeType32>(memory.kv_tokens),
          memory.table()};
}
SizeType32 Executor::getVocabSize() const { return impl_->core().options().requests.vocab_size; }
KvCacheStats Executor::getKvCacheStats() const { return impl_->core().kvCacheStats(); }
std::optional<AdapterState> Executor::getAdapterState(IdType taskId) { return impl_->core().adapterState(taskId); }
std::vector<AdapterState> Executor::getAdapterStates() { return impl_->core().adapterStates(); }
AdapterCacheStats Executor::getAdapterCacheStats() const { return impl_->core().adapterCacheStats(); }
LiveBatch Executor::getLiveBatch() const { return impl_->core().liveBatch(); }

}  // namespace chorus::executor
