#include "server/model/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/names.h"
#include "server/http/connection_limits.h"
#include "server/http/connection_memory.h"
#include "server/model/file_digests.h"
#include "server/model/hub_cache.h"
#include "server/model/start_checks.h"

namespace chorus::server {
namespace {

namespace fs = std::filesystem;

// Limit in bytes on the tokenizers and templates of all adapters.
size_t adapterTextBytes(const ServeOptions& options) {
  if (options.adapter_text_memory_mib) return static_cast<size_t>(*options.adapter_text_memory_mib) << 20;
  return std::min<size_t>(size_t{1} << 30, availableMemory() / 8);
}

executor::KvReuseScope reuseScope(const ServeOptions& options) {
  const bool has_keys = !options.api_key.empty() || !options.api_keys_file.empty();
  const std::string scope = !options.kv_reuse_scope.empty() ? options.kv_reuse_scope : has_keys ? "client" : "all";
  using Scope = executor::KvReuseScope;
  log::info("KV blocks are shared between requests of {} (--kv_reuse_scope {}), and by cache_salt",
            scope == "client"    ? "one client"
            : scope == "adapter" ? "one adapter, without one of a client"
                                 : "all clients",
            scope);
  if (scope == "client") return Scope::kCLIENT;
  return scope == "adapter" ? Scope::kADAPTER : Scope::kALL;
}

executor::ExecutorConfig executorConfig(const ServeOptions& options) {
  executor::ExecutorConfig config;
  config.setPeftCacheConfig(adapterCacheConfig(options));
  config.setMaxBatchSize(options.max_batch_size);
  config.setMaxNumTokens(options.max_num_tokens);
  config.setMaxQueueSize(options.max_queue_size);
  config.setWeightedFairness(options.fairness != "turns");
  config.getKvCacheConfigRef().setMaxTokens(options.kv_cache_max_tokens);
  config.getKvCacheConfigRef().setFreeGpuMemoryFraction(options.kv_cache_free_memory_fraction);
  config.getKvCacheConfigRef().setReuseScope(reuseScope(options));
  if (!options.attention_windows.empty()) {
    config.getKvCacheConfigRef().setMaxAttentionWindowVec(options.attention_windows);
  }
  config.setNumThreads(options.threads);
  config.setBackend(options.backend);
  config.setImportWeightsInBackground(true);
  if (!options.isa.empty()) config.setIsa(options.isa);
  return config;
}

IntakeOptions intakeOptions(const ServeOptions& options) {
  IntakeOptions intake;
  intake.threads = options.intake_threads;
  intake.timeout = std::chrono::milliseconds(static_cast<int64_t>(std::ceil(options.intake_timeout_seconds * 1000)));
  intake.work_limit = static_cast<uint64_t>(options.intake_work_limit);
  return intake;
}

// Two threads, of which one client has at most one. The size of an adapter's files is limited before they are read, so
// the bytes of work need no limit.
IntakeOptions adapterIntakeOptions() {
  IntakeOptions intake;
  intake.threads = 1;
  intake.reserve = true;
  intake.small_bytes = 0;
  intake.timeout = kAdapterReadTime;
  intake.work_limit = intake.work_at_first = WorkMeter::kUnlimited;
  intake.work_for_each_byte = 0;
  return intake;
}

// One thread is enough: clients take turns, and with many thousands of adapters a list takes a second.
IntakeOptions listIntakeOptions() { return {.threads = 1, .reserve = false}; }

// A client may use two of the three threads, so that its large answers do not keep other clients' tokens waiting.
WorkerOptions deliveryOptions() { return {.threads = 2, .reserve = true}; }

std::string nameFor(const ServeOptions& options, const ServedEngine& engine) {
  if (!options.model_name.empty()) return options.model_name;
  const fs::path named =
      options.model_directory.empty() ? engine.tokenizer_directory : fs::path(options.model_directory);
  if (const auto name = hubModelName(named)) return *name;
  fs::path full = fs::absolute(named).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  std::error_code ignored;
  return (fs::is_regular_file(full, ignored) ? full.stem() : full.filename()).string();
}

void logFound(const AdapterDirectory::Found& found) {
  const auto list = [](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) log::info("{}: {}", what, listSome(names));
  };
  list("new adapters", found.added);
  list("adapters with new content", found.replaced);
  list("adapters removed", found.removed);
}

}  // namespace

LoadedModel::LoadedModel(const ServeOptions& options, const ServedEngine& engine)
    : intake_(intakeOptions(options)),
      adapter_intake_(adapterIntakeOptions()),
      list_intake_(listIntakeOptions()),
      delivery_(deliveryOptions()),
      http_memory_mib_(options.http_memory_mib),
      connections_(static_cast<size_t>(options.max_connections) + ConnectionLimits().reserve),
      tls_(!options.tls_cert_file.empty()) {
  const size_t text_bytes =
      servesAdapters(options) ? adapterTextBytes(options) : 0;  // before the executor's caches take memory
  const auto& text = engine.text;
  executor_ = std::make_unique<executor::Executor>(engine.engine_directory, executor::ModelType::kDECODER_ONLY,
                                                   executorConfig(options));
  client_ = makeEngineClient(*executor_);

  ServedModel base;
  base.name = nameFor(options, engine);
  base.fingerprint = "fp_" + sampledFingerprint(engine.engine_directory).substr(0, 12);
  base.created = std::time(nullptr);
  base.text = text;
  models_ = std::make_unique<ModelCatalog>(std::move(base));
  if (servesAdapters(options)) {
    texts_ = std::make_unique<AdapterTexts>(
        text, engine.tokenizer_directory, client_->vocabSize(),
        AdapterTextOptions{.trusted = options.trust_adapter_text, .memory_bytes = text_bytes});
    const auto loadText = [this](const Directory& dir, WorkMeter& meter, bool parse) {
      return texts_->load(dir, meter, parse);
    };
    const AdapterDirectoryOptions how{.links = options.lora_dir_links == "follow" ? Links::kFollow : Links::kInside,
                                      .refresh = options.lora_refresh == "sync"      ? AdapterRefresh::kSync
                                                 : options.lora_refresh == "replace" ? AdapterRefresh::kReplace
                                                                                     : AdapterRefresh::kAdd,
                                      .allowed_roots = options.lora_allowed_roots,
                                      .upload_directory = options.lora_upload_dir,
                                      .upload_bytes = static_cast<uint64_t>(options.lora_upload_space_mib) << 20,
                                      .on_text_left = [this] { wake(texts_left_); }};
    adapters_ = std::make_unique<AdapterDirectory>(options.lora_directories, *models_, *client_, loadText, how);
    registerAdapters(options.lora_start_time);
  }
  context_ = std::make_shared<ApiContext>(
      ApiContext{*client_, *models_, intake_, adapter_intake_, list_intake_, delivery_, engine.defaults, {}});
  context_->trust_request_templates = options.trust_request_templates;
  context_->max_choices = options.max_choices;
  if (options.enable_admin) context_->adapters = adapters_.get();
  const auto timeout = [](double seconds) -> std::optional<std::chrono::milliseconds> {
    if (seconds <= 0) return std::nullopt;
    return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
  };
  context_->request_timeout = timeout(options.request_timeout_seconds);
  context_->queue_timeout = timeout(options.queue_timeout_seconds);
  if (options.fairness == "weighted") context_->fair_by = FairBy::kClients;
  if (options.fairness == "weighted_adapters") context_->fair_by = FairBy::kAdapters;
  context_->max_upload_bytes = static_cast<size_t>(options.lora_upload_limit_mib) << 20;

  warmUp();
  if (adapters_) {
    std::packaged_task<void(std::chrono::seconds)> task(
        [this](std::chrono::seconds interval) { refreshAdapters(interval); });
    refresh_ended_ = task.get_future();
    refresh_ = std::thread(std::move(task), std::chrono::seconds(options.lora_refresh_seconds));
  }
}

LoadedModel::~LoadedModel() {
  stop();
  if (refresh_.joinable()) refresh_.join();
  executor_.reset();  // first, because its loaders call the adapter directory
}

void LoadedModel::registerAdapters(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limit;
  bool out_of_time = false;
  const auto late = [&] { return out_of_time = out_of_time || Clock::now() >= end; };
  const auto registered = adapters_->scan({.stop = late, .defer_texts = true}).added.size();
  if (out_of_time) {
    rescanAdapters();
    log::warn("{} adapters were registered within {} ms; the rest is registered while the server answers", registered,
              limit.count());
  }
  // A few tokenizers are read before the server is ready, so that it lists only adapters whose text is good.
  constexpr std::chrono::milliseconds kTextsAtStart{500};
  const auto ready_at = Clock::now() + kTextsAtStart;
  AdapterDirectory::Found found;
  adapters_->readTexts(found, [&] { return Clock::now() >= ready_at; });
}

void LoadedModel::warmUp() {
  const executor::Request request({0}, 1);
  const auto id = executor_->enqueueRequest(request);
  for (const executor::Response& response : executor_->awaitResponses(id)) {
    if (response.hasError()) fail(ErrorCode::kInternal, "the first token failed: {}", response.getErrorMsg());
  }
}

void LoadedModel::refreshAdapters(std::chrono::seconds interval) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kSoon{1};  // until texts that could not be read are tried again
  const auto stopped = [this] { return stopping_.load(); };
  auto scan_at = interval.count() > 0 ? Clock::now() + interval : Clock::time_point::max();
  while (true) {
    bool try_again = true;
    bool scan_failed = false;
    try {
      AdapterDirectory::Found found;
      if (rescan_.exchange(false) || Clock::now() >= scan_at) {
        scan_failed = true;  // until it has ended
        found = adapters_->scan({.stop = stopped, .leave_slow = true});
        scan_failed = false;
        if (interval.count() > 0) scan_at = Clock::now() + interval;
      }
      texts_left_ = false;
      // Other adapters' changes must not wait until all texts are read. But each round reads one at least.
      bool any = false;
      const auto interrupted = [&] {
        return stopping_ || (std::exchange(any, true) && (rescan_ || texts_left_ || Clock::now() >= scan_at));
      };
      try_again = adapters_->readTexts(found, interrupted) > 0;
      logFound(found);
    } catch (const std::exception& e) {  // for example out of memory: the next scan may succeed
      log::error("scanning for adapters failed: {}", e.what());
      if (scan_failed) rescan_ = true;
    }
    std::unique_lock lock(wake_mutex_);
    // A scan that failed is done again after kSoon, not at once.
    const auto woken = [&] { return stopping_ || (rescan_ && !scan_failed) || texts_left_; };
    if (try_again || interval.count() > 0) {
      wake_.wait_until(lock, try_again ? std::min(scan_at, Clock::now() + kSoon) : scan_at, woken);
    } else {
      wake_.wait(lock, woken);
    }
    if (stopping_) return;
  }
}

void LoadedModel::wake(std::atomic<bool>& why) {
  {
    const std::lock_guard lock(wake_mutex_);
    why = true;
  }
  wake_.notify_all();
}

void LoadedModel::endLongWaits() {
  try {
    models_->endWaitsBefore(TextWaits::Clock::now() - AdapterDirectory::kMaxTextWait);
  } catch (const std::exception& e) {  // for example out of memory: the next call ends them
    log::error("ending waits for tokenizers failed: {}", e.what());
  }
}

void LoadedModel::rescanAdapters() { wake(rescan_); }

std::string LoadedModel::summary() const {
  const auto models = models_->list();
  std::string names;
  constexpr size_t kMostNames = 20;
  for (size_t i = 1; i < models.size() && i <= kMostNames; ++i) names += (i > 1 ? ", " : "") + models[i]->name;
  if (models.size() > kMostNames + 1) names += fmt::format(" and {} more", models.size() - 1 - kMostNames);
  std::string text =
      fmt::format("  base model  {}\n  adapters    {}\n", models[0]->name, names.empty() ? "none" : names);
  text += executor_->getMemoryUse().table;
  if (!text.ends_with('\n')) text += '\n';
  if (texts_) {
    text += fmt::format("  {:<12}{:>12.1f} MiB  tokenizers and templates of adapters, at most\n", "text",
                        mebibytes(texts_->limit()));
  }
  text += fmt::format("  {:<17}{:>7.1f} MiB  at most, of which one client {:.1f}: bodies, requests, unread answers\n",
                      "http", static_cast<double>(http_memory_mib_), http_memory_mib_ / 4.0);
  const size_t each = tls_ ? kTlsConnectionBytes : kConnectionBytes;
  return text + fmt::format("  {:<17}{:>7.1f} MiB  at most, for {} connections{} of {} KiB", "connections",
                            mebibytes(connections_ * each), connections_, tls_ ? " with TLS" : "", each >> 10);
}

bool LoadedModel::stop() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience{1000};
  constexpr std::chrono::milliseconds kLeast{100};  // for a pool that comes after others that took all the time
  wake(stopping_);
  intake_.cancelAll();
  adapter_intake_.cancelAll();
  list_intake_.cancelAll();
  models_->endWaits();
  executor_->shutdown();
  const auto end = Clock::now() + kPatience;
  const auto left = [&] {
    return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()), kLeast);
  };
  bool ended = intake_.finish(left());
  ended &= adapter_intake_.finish(left());
  ended &= list_intake_.finish(left());
  ended &= delivery_.finish(left());
  if (!refresh_.joinable()) return ended;
  if (refresh_ended_.wait_until(end) != std::future_status::ready) return false;
  refresh_.join();
  return ended;
}

}  // namespace chorus::server
