#include "server/metrics/live_state.h"

#include <map>
#include <string>
#include <unordered_map>

#include "server/openai/request_json.h"

namespace chorus::server {
namespace {

using Names = std::unordered_map<executor::IdType, std::string>;

// The sequence's model: the base model, its adapter, or for a composition the names joined by '+'. An adapter that is
// not in `names` was removed, or the request must not see it.
std::string modelOf(const executor::RunningSequence& sequence, const Names& names, const std::string& base) {
  if (sequence.adapters.empty()) return base;
  std::string model;
  for (const executor::IdType id : sequence.adapters) {
    const auto name = names.find(id);
    if (!model.empty()) model += '+';
    model += name == names.end() ? "(other)" : name->second;
  }
  return model;
}

OrderedJson adapterCacheJson(const executor::LiveBatch& batch, const Names& names) {
  OrderedJson adapters = OrderedJson::array();
  for (const executor::ResidentAdapter& adapter : batch.adapters) {
    const auto name = names.find(adapter.taskId);
    if (name == names.end()) continue;
    adapters.push_back(OrderedJson{{"name", name->second},
                                   {"bytes", adapter.bytes},
                                   {"in_use", adapter.users},
                                   {"state", adapter.loading    ? "loading"
                                             : adapter.onDevice ? "device"
                                                                : "host"}});
  }
  const executor::AdapterCacheStats& cache = batch.adapterCache;
  return {{"used_bytes", cache.host.residentBytes},
          {"total_bytes", cache.host.maxBytes},
          {"device_used_bytes", cache.device.residentBytes},
          {"device_total_bytes", cache.device.maxBytes},
          {"loads", cache.loads},
          {"failed_loads", cache.failedLoads},
          {"evictions", cache.host.evictions},
          {"adapters", std::move(adapters)}};
}

}  // namespace

HttpResponse describeBatch(const ApiContext& context, const ModelView& models, const Client* client) {
  const executor::LiveBatch batch = context.engine.liveBatch();
  Names names;
  for (const auto& model : models.list()) {
    if (model->adapter_id) names.emplace(*model->adapter_id, model->name);
  }
  const std::string& base = models.base().name;
  OrderedJson sequences = OrderedJson::array();
  std::map<std::string, int> of_step;
  const bool sees_all = models.isOfAdmin();
  for (const executor::RunningSequence& sequence : batch.running) {
    if (!sees_all && (client == nullptr || sequence.clientId != client->id())) continue;
    const std::string model = modelOf(sequence, names, base);
    if (sequence.inStep) ++of_step[model];
    sequences.push_back(OrderedJson{{"model", model},
                                    {"phase", sequence.generates ? "generation" : "context"},
                                    {"in_step", sequence.inStep},
                                    {"prompt_tokens", sequence.promptTokens},
                                    {"computed_tokens", sequence.computedTokens},
                                    {"generated_tokens", sequence.generatedTokens}});
  }
  const executor::KvCacheStats& kv = batch.kvCache;
  const OrderedJson json{{"max_batch_size", batch.maxBatchSize},
                         {"running", batch.running.size()},
                         {"waiting", batch.numWaiting},
                         {"sequences", std::move(sequences)},
                         {"step", {{"number", batch.totals.steps}, {"sequences_of_model", of_step}}},
                         {"generated_tokens", batch.totals.generatedTokens},
                         {"context_tokens", batch.totals.contextTokens},
                         {"kv_cache",
                          {{"total_blocks", kv.maxNumBlocks},
                           {"used_blocks", kv.usedNumBlocks},
                           {"cached_blocks", kv.cachedNumBlocks},
                           {"tokens_per_block", kv.tokensPerBlock}}},
                         {"adapter_cache", adapterCacheJson(batch, names)}};
  return {.body = toText(json), .headers = {{"cache-control", "no-store"}}};
}

}  // namespace chorus::server
