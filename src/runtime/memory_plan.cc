#include "runtime/memory_plan.h"

#include <functional>

#include "base/error.h"
#include "base/units.h"

namespace chorus {
namespace {

int64_t sumOf(const std::vector<SessionMemory>& ranks, const std::function<int64_t(const SessionMemory&)>& part) {
  int64_t sum = 0;
  for (const SessionMemory& rank : ranks) sum += part(rank);
  return sum;
}
}  // namespace

int64_t MemoryPlan::weights() const {
  return sumOf(ranks, [](const SessionMemory& rank) { return rank.weights; });
}
int64_t MemoryPlan::kvCache() const {
  return sumOf(ranks, [](const SessionMemory& rank) { return rank.kv_cache; });
}
int64_t MemoryPlan::activations() const {
  return sumOf(ranks, [](const SessionMemory& rank) { return rank.activations + rank.host; });
}

std::string MemoryPlan::table() const {
  std::string text;
  const auto row = [&](const char* name, const std::function<int64_t(const SessionMemory&)>& part, int64_t all,
                       const std::string& note) {
    text += fmt::format("  {:<12}", name);
    if (ranks.size() > 1) {
      for (const SessionMemory& rank : ranks)
        text += part ? fmt::format("{:>12.1f}", mebibytes(part(rank))) : std::string(12, ' ');
    }
    text += fmt::format("{:>12.1f} MiB  {}", mebibytes(all), note);
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  };
  if (ranks.size() > 1) {
    text += fmt::format("  {:<12}", "memory");
    for (size_t rank = 0; rank < ranks.size(); ++rank) text += fmt::format("{:>12}", fmt::format("rank {}", rank));
    text += fmt::format("{:>12}\n", "all");
  }
  row("weights", [](const SessionMemory& rank) { return rank.weights; }, weights(), "");
  row(
      "KV cache", [](const SessionMemory& rank) { return rank.kv_cache; }, kvCache(),
      fmt::format("{} tokens", kv_tokens));
  row("activations", [](const SessionMemory& rank) { return rank.activations + rank.host; }, activations(), "");
  row("adapters", nullptr, adapters, adapters > 0 ? "upper bound, filled as adapters are used" : "");
  if (loads > 0) row("loads", nullptr, loads, "upper bound, files of adapters while they are read");
  row("total", nullptr, total(), "");
  row("available", nullptr, available, "before loading");
  text.pop_back();
  return text;
}

void MemoryPlan::check() const {
  const int64_t needed = total() - adapters - loads;
  if (needed <= available) return;
  fail(
      ErrorCode::kExhausted,
      "the engine needs {:.1f} MiB (weights {:.1f}, KV cache {:.1f}, activations {:.1f}), but {:.1f} MiB of memory are "
      "available: reduce the tokens of the KV cache, max_num_tokens or max_batch_size",
      mebibytes(needed), mebibytes(weights()), mebibytes(kvCache()), mebibytes(activations()), mebibytes(available));
}

MemoryPlan planMemory(std::span<const std::shared_ptr<const Engine>> engines, const SessionOptions& options,
                      const AdapterBytes& adapters, int64_t available) {
  MemoryPlan plan;
  for (const auto& engine : engines) plan.ranks.push_back(Session::memoryNeeds(*engine, options));
  if (engines.front()->buildConfig().lora_plugin) {
    plan.adapters = adapters.cache;
    plan.loads = adapters.loads;
  }
  plan.available = available;
  const Engine& engine = *engines.front();
  const KvCacheShape cache = Session::kvCache(engine.config(), engine.buildConfig(), options);
  const int32_t per_block =
      options.tokens_per_block > 0 ? options.tokens_per_block : engine.buildConfig().tokens_per_block;
  plan.kv_tokens = options.kv_blocks / std::ssize(cache.windows) * per_block;
  return plan;
}

}  // namespace chorus
