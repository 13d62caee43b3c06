#include "server/metrics/engine_metrics.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace chorus::server {
namespace {

using Names = std::unordered_map<executor::IdType, std::string>;

double real(int64_t value) { return static_cast<double>(value); }

// A name with a comma is left out, because a reader would take it for several names.
std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (name.find(',') == std::string::npos) text += (text.empty() ? "" : ",") + name;
  }
  return text;
}

// The gauge by which the Gateway API inference extension routes requests to servers that have their adapter. It has one
// series, so that a reader never sees an old list. running: all adapters that are loaded, also those in no request.
void addLoraInfo(MetricFamilies& families, const executor::LiveBatch& batch, const Names& names) {
  std::set<std::string> loaded, waiting;
  size_t most = 0;
  for (const executor::ResidentAdapter& adapter : batch.adapters) {
    const auto name = names.find(adapter.taskId);
    if (name == names.end()) continue;
    if (!adapter.loading) loaded.insert(name->second);
  }
  for (const executor::IdType id : batch.waitingAdapters) {
    const auto name = names.find(id);
    if (name != names.end() && !loaded.contains(name->second)) waiting.insert(name->second);
  }
  // The cache is measured in bytes. Its capacity in adapters is estimated by the mean size of those that it has.
  const auto& host = batch.adapterCache.host;
  if (host.residentAdapters > 0 && host.residentBytes > 0) {
    most = static_cast<size_t>(host.maxBytes / std::max<int64_t>(host.residentBytes / host.residentAdapters, 1));
  }
  families.gauge("vllm:lora_requests_info", "Unix time of this list of loaded and awaited adapters",
                 real(std::time(nullptr)),
                 {{"max_lora", std::to_string(std::max(most, loaded.size()))},
                  {"running_lora_adapters", joined(loaded)},
                  {"waiting_lora_adapters", joined(waiting)}});
}

void addBatch(MetricFamilies& families, const executor::LiveBatch& batch, const MetricLabels& labels) {
  const executor::KvCacheStats& kv = batch.kvCache;
  const double used = kv.maxNumBlocks > 0 ? real(kv.usedNumBlocks) / kv.maxNumBlocks : 0;
  for (const char* prefix : {"", "vllm:"}) {
    const auto name = [&](const char* of) { return std::string(prefix) + of; };
    families.gauge(name("num_requests_running"), "Sequences that run", real(static_cast<int64_t>(batch.running.size())),
                   labels);
    families.gauge(name("num_requests_waiting"), "Sequences that wait", batch.numWaiting, labels);
    families.gauge(name("gpu_cache_usage_perc"), "Share of the KV blocks that sequences use; 1 is all", used, labels);
  }
  families.gauge("num_request_max", "Most sequences that run at once", batch.maxBatchSize, labels);
  families.gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks that sequences use; 1 is all", used, labels);
  const double tokens = kv.tokensPerBlock;
  families.counter("vllm:prefix_cache_queries_total",
                   "Prompt tokens that were looked up in the prefix cache, in whole blocks",
                   (real(kv.reusedBlocks) + kv.missedBlocks) * tokens, labels);
  families.counter("vllm:prefix_cache_hits_total", "Prompt tokens that were found in the prefix cache, in whole blocks",
                   kv.reusedBlocks * tokens, labels);
  families.counter("vllm:num_preemptions_total", "Times that a running sequence was paused",
                   real(batch.totals.preemptions), labels);
  MetricLabels config = labels;
  config.push_back({"block_size", std::to_string(kv.tokensPerBlock)});
  config.push_back({"num_gpu_blocks", std::to_string(kv.maxNumBlocks)});
  families.gauge("vllm:cache_config_info", "The KV cache", 1, std::move(config));
  const auto blocks = [&](const char* state, int32_t count) {
    families.gauge("chorus_kv_blocks", "KV blocks by state", count, {{"state", state}});
  };
  blocks("used", kv.usedNumBlocks);
  blocks("cached", kv.cachedNumBlocks);
  blocks("free", kv.freeNumBlocks - kv.cachedNumBlocks);
}

void addSteps(MetricFamilies& families, const executor::StepTotals& totals) {
  families.counter("chorus_steps_total", "Steps", real(totals.steps));
  const auto seconds = [&](const char* phase, double value) {
    families.counter("chorus_step_seconds_total", "Time of the steps by phase", value, {{"phase", phase}});
  };
  seconds("scheduling", totals.schedulingSeconds);
  seconds("network", totals.networkSeconds);
  seconds("sampling", totals.samplingSeconds);
  seconds("delivery", totals.deliverySeconds);
  families.counter("chorus_step_context_tokens_total", "Prompt tokens that steps computed", real(totals.contextTokens));
  families.counter("chorus_step_generated_tokens_total", "Tokens that steps generated", real(totals.generatedTokens));
  families.counter("chorus_step_sequences_total", "Sequences of a step, summed over the steps",
                   real(totals.contextSequences), {{"phase", "context"}});
  families.counter("chorus_step_sequences_total", "", real(totals.generationSequences), {{"phase", "generation"}});
  families.counter("chorus_step_adapters_total", "Distinct adapters of a step, summed over the steps",
                   real(totals.adapters));
}

void addAdapterCache(MetricFamilies& families, const executor::AdapterCacheStats& cache) {
  const auto level = [&](const char* name, const executor::AdapterCacheLevelStats& stats) {
    const MetricLabels of_level{{"level", name}};
    families.gauge("chorus_adapter_cache_used_bytes", "Size of the adapters in the cache", real(stats.residentBytes),
                   of_level);
    families.gauge("chorus_adapter_cache_capacity_bytes", "Size of the cache", real(stats.maxBytes), of_level);
    families.gauge("chorus_adapter_cache_adapters", "Adapters in the cache", stats.residentAdapters, of_level);
    families.gauge("chorus_adapter_cache_adapters_in_use", "Adapters in the cache that requests use",
                   stats.pinnedAdapters, of_level);
    families.counter("chorus_adapter_cache_hits_total", "Claims of an adapter that was in the cache", real(stats.hits),
                     of_level);
    families.counter("chorus_adapter_cache_misses_total", "Claims of an adapter that was not", real(stats.misses),
                     of_level);
    families.counter("chorus_adapter_cache_evictions_total", "Adapters that were removed to make room",
                     real(stats.evictions), of_level);
  };
  level("host", cache.host);
  level("device", cache.device);
  families.counter("chorus_adapter_loads_total", "Loads by outcome", real(cache.loads), {{"outcome", "loaded"}});
  families.counter("chorus_adapter_loads_total", "", real(cache.failedLoads), {{"outcome", "failed"}});
  const executor::AdapterLoadTimes& times = cache.loadTimes;
  constexpr auto& kBounds = executor::AdapterLoadTimes::kBounds;
  prometheus::ClientMetric::Histogram seconds;
  for (size_t i = 0; i < times.counts.size(); ++i) {
    seconds.sample_count += static_cast<uint64_t>(times.counts[i]);
    const double bound = i < kBounds.size() ? kBounds[i] : std::numeric_limits<double>::infinity();
    seconds.bucket.push_back({.cumulative_count = seconds.sample_count, .upper_bound = bound});
  }
  seconds.sample_sum = times.seconds;
  families.histogram("chorus_adapter_load_seconds",
                     "From the request that needed an adapter to the end of its successful load", std::move(seconds));
}

}  // namespace

void addEngineMetrics(MetricFamilies& families, const ApiContext& context, const MetricLabels& labels) {
  const executor::LiveBatch batch = context.engine.liveBatch();
  std::unordered_set<executor::IdType> shown(batch.waitingAdapters.begin(), batch.waitingAdapters.end());
  for (const executor::ResidentAdapter& adapter : batch.adapters) shown.insert(adapter.taskId);
  Names names;
  for (const auto& model : context.models.list()) {
    if (model->adapter_id && shown.contains(*model->adapter_id)) names.emplace(*model->adapter_id, model->name);
  }
  addBatch(families, batch, labels);
  addSteps(families, batch.totals);
  addAdapterCache(families, batch.adapterCache);
  addLoraInfo(families, batch, names);
}

}  // namespace chorus::server
