#include "engine/rank_group.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/local.h"
#include "engine/adapter_limits.h"
#include "engine/rank_threads.h"
#include "kernels/numa.h"
#include "lora/adapter.h"

namespace chorus {
namespace {
constexpr int kSpinMicroseconds = 50;
}  // namespace

std::vector<std::shared_ptr<const Engine>> RankGroup::loadEngines(const std::filesystem::path& dir) {
  std::vector<std::shared_ptr<const Engine>> engines = {Engine::load(dir)};
  const int32_t ranks = engines.front()->config().mapping.worldSize();
  for (int32_t rank = 1; rank < ranks; ++rank) engines.push_back(Engine::load(dir, rank));
  return engines;
}

// Everything that may be in use after the group's end, by the last copy of an adapter.
struct RankGroup::Ranks {
  Rank& at(int32_t rank) { return *ranks[static_cast<size_t>(rank)]; }

  // Lets the calling thread run on the node of the rank's first thread.
  void placeThread(int32_t rank) const {
    const std::vector<NumaNode>& of_rank = nodes[static_cast<size_t>(rank)];
    if (!of_rank.empty()) runThreadOn(of_rank.front());
  }

  // The adapters that commands name while they run.
  const Adapter& pendingOf(AdapterId id) {
    const std::lock_guard lock(mutex);
    return *pending.at(id);
  }
  void drop(AdapterId id) noexcept {
    const AdapterCommandBytes command = encodeAdapter(RankCommand::kDrop, id);
    for (const auto& rank : ranks) rank->adapter(command);
  }

  std::atomic<uint64_t> last_id{0};
  std::mutex mutex;
  std::map<AdapterId, const Adapter*> pending;
  int32_t tp_size = 1;
  int32_t kv_groups = 1;
  std::vector<std::vector<NumaNode>> nodes;         // by rank; each list is empty if nothing is placed
  std::vector<std::unique_ptr<LocalGroup>> groups;  // for each use, one for each stage or for each tp_rank
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::byte> step;                 // the current step's command
  std::optional<RankThreads> steps, adapters;  // declared last, because they use the members above
};

RankGroup::RankGroup(std::vector<std::shared_ptr<const Engine>> engines, const BackendOptions& backend,
                     const SessionOptions& options, const WrapBackend& wrap)
    : engines_(std::move(engines)), ranks_(std::make_shared<Ranks>()) {
  const ModelConfig& config = engine().config();
  const Mapping& mapping = config.mapping;
  const int threads = backend.threads > 0 ? backend.threads : availableCores();
  BackendOptions each = backend;
  each.threads = std::max(1, threads / mapping.tp_size);
  // With more threads than cores, idle threads that spin would take cores from threads that work.
  if (each.threads * size() > availableCores()) each.spin_us = 0;
  const int spin_us = size() > availableCores() || each.spin_us == 0 ? 0 : kSpinMicroseconds;

  Ranks& all = *ranks_;
  all.tp_size = mapping.tp_size;
  all.kv_groups = static_cast<int32_t>(Session::kvCache(config, engine().buildConfig(), options).windows.size());
  // Adds one local group of `ranks` ranks for each of `count` stages or tp_ranks. A single rank needs none.
  const auto addGroups = [&](int32_t count, int32_t ranks, int64_t longest_row, int spin) {
    std::vector<LocalGroup*> added;
    for (int32_t i = 0; i < count && ranks > 1; ++i) {
      added.push_back(all.groups.emplace_back(std::make_unique<LocalGroup>(ranks, longest_row, spin)).get());
    }
    return added;
  };
  const int64_t longest_row = std::max({config.vocab_size, config.hidden_size, config.embedding_size});
  const auto tensor = addGroups(mapping.pp_size, mapping.tp_size, longest_row, spin_us);
  const auto pipeline = addGroups(mapping.tp_size, mapping.pp_size, longest_row, spin_us);
  const auto adapters = addGroups(mapping.pp_size, mapping.tp_size, 1, 0);
  std::vector<NumaNode> nodes = numaNodes();
  if (!haveProcessorsFor(nodes, mapping.tp_size, each.threads)) nodes.clear();
  if (!nodes.empty()) {
    log::info(
        "{} NUMA nodes: {}", nodes.size(),
        mapping.tp_size > 1 ? "the ranks of a stage divide them" : "each thread stays on one; weights lie on all");
  }
  for (int32_t i = 0; i < size(); ++i) {
    const int32_t stage = mapping.ppRank(i), tp_rank = mapping.tpRank(i);
    const std::span<const NumaNode> of_rank = nodesOfPart(nodes, tp_rank, mapping.tp_size);
    each.nodes.assign(of_rank.begin(), of_rank.end());
    all.nodes.push_back(each.nodes);
    std::unique_ptr<Backend> backend_of_rank = createBackend(each);
    if (wrap) backend_of_rank = wrap(std::move(backend_of_rank), i);
    const std::shared_ptr<Backend> own = std::move(backend_of_rank);
    const auto communicatorOf = [&](const std::vector<LocalGroup*>& groups, int32_t group, int32_t rank) {
      return groups.empty() ? nullptr : groups[static_cast<size_t>(group)]->communicator(rank, *own);
    };
    RankCommunicators communicators{communicatorOf(tensor, stage, tp_rank), communicatorOf(pipeline, tp_rank, stage),
                                    communicatorOf(adapters, stage, tp_rank)};
    all.ranks.push_back(std::make_unique<Rank>(engines_[static_cast<size_t>(i)], own, options, std::move(communicators),
                                               [&all](AdapterId id) -> const Adapter& { return all.pendingOf(id); }));
  }
  std::vector<LocalGroup*> of_steps = tensor;
  of_steps.insert(of_steps.end(), pipeline.begin(), pipeline.end());
  all.steps.emplace(size(), std::move(of_steps), [&all](int32_t rank) { all.placeThread(rank); });
  all.adapters.emplace(size(), adapters);
}

RankGroup::~RankGroup() = default;

void RankGroup::placeStepThread() const { ranks_->placeThread(0); }

std::span<const float> RankGroup::run(const StepInput& input) {
  Ranks& all = *ranks_;
  if (size() == 1) return all.at(0).session().run(input);
  encodeStep(input, all.kv_groups, all.step);
  std::span<const float> logits;
  const int32_t holder = size() - all.tp_size;  // only the first rank of the last stage has the logits
  all.steps->run(0, size(), [&](int32_t rank) {
    const std::span<const float> own = all.at(rank).step(all.step);
    if (rank == holder) logits = own;
  });
  return logits;
}

PreparedAdapter RankGroup::registered() const {
  struct Shares {
    std::weak_ptr<Ranks> ranks;
    AdapterId id;
    ~Shares() {
      if (const auto all = ranks.lock()) all->drop(id);
    }
  };
  const AdapterId id{++ranks_->last_id};
  return {.id = id, .shares = std::make_shared<const Shares>(ranks_, id)};
}

AdapterReport RankGroup::askRanks(RankCommand command, AdapterId id, const Adapter& adapter,
                                  BackgroundThrottle* throttle, const MakeThrottleClock& make_clock) const {
  Ranks& all = *ranks_;
  {
    const std::lock_guard lock(all.mutex);
    all.pending[id] = &adapter;
  }
  struct Forget {
    Ranks& all;
    AdapterId id;
    ~Forget() {
      const std::lock_guard lock(all.mutex);
      all.pending.erase(id);
    }
  } const forget{all, id};
  const AdapterCommandBytes bytes = encodeAdapter(command, id);
  AdapterReport sum;
  std::mutex sum_mutex;
  // The stages take turns, so that only one stage's part of the adapter is in memory twice.
  for (int32_t begin = 0; begin < size(); begin += all.tp_size) {
    all.adapters->run(begin, all.tp_size, [&](int32_t rank) {
      const bool on_callers_thread = rank == begin;
      std::optional<BackgroundThrottle> own;
      if (make_clock && !on_callers_thread) own.emplace(make_clock());
      const AdapterReport report = all.at(rank).adapter(bytes, on_callers_thread ? throttle : own ? &*own : nullptr);
      const std::lock_guard lock(sum_mutex);
      sum.bytes += report.bytes;
      if (sum.composition_refusal.empty()) sum.composition_refusal = report.composition_refusal;
    });
  }
  return sum;
}

void RankGroup::checkFits(const Adapter& adapter, BackgroundThrottle* throttle) const {
  checkServable(adapter, engine().buildConfig());
  const int64_t vocab = engine().config().vocab_size;
  const int64_t most = vocab + session(0).options().max_added_tokens;
  if (adapter.vocab_size > most || adapter.vocab_size > std::max(adapter.input_vocab_size, vocab)) {
    fail(ErrorCode::kUnsupported,
         "adapter '{}' has logits of {} tokens and takes {}: a model of {} serves adapters with at most {}, all of "
         "which they take",
         adapter.name, adapter.vocab_size, adapter.input_vocab_size, vocab, most);
  }
  if (adapter.only_shapes) return;
  const ModelConfig& config = engine().config();
  const auto& format = session(0).options().lora_format;
  const WeightTable table = engine().architecture().weightTable(config);
  checkValues(adapter, {table, config.dtype, format && isQuantised(format->dtype)}, throttle);
}

std::shared_ptr<const PreparedAdapter> RankGroup::prepareAdapter(const Adapter& adapter, BackgroundThrottle* throttle,
                                                                 const MakeThrottleClock& make_clock) const {
  assert(!adapter.only_shapes);
  checkFits(adapter, throttle);
  auto prepared = std::make_shared<PreparedAdapter>(registered());
  AdapterReport report = askRanks(RankCommand::kPrepare, prepared->id, adapter, throttle, make_clock);
  prepared->bytes = static_cast<size_t>(report.bytes);
  prepared->elements = adapterElements(adapter);
  prepared->vocab_size = adapter.vocab_size;
  prepared->input_vocab_size = adapter.input_vocab_size;
  prepared->content_hash = adapter.content_hash;
  // Adapters of parameters could be added, but PEFT refuses to, and a composition must give PEFT's result.
  prepared->composition_refusal = adapter.adapts_parameters ? "adapts parameters by name (target_parameters)"
                                                            : std::move(report.composition_refusal);
  return prepared;
}

int64_t RankGroup::preparedBytes(const Adapter& adapter, BackgroundThrottle* throttle,
                                 const MakeThrottleClock& make_clock) const {
  checkFits(adapter, throttle);
  return askRanks(RankCommand::kMeasure, AdapterId{++ranks_->last_id}, adapter, throttle, make_clock).bytes;
}

std::shared_ptr<const PreparedAdapter> RankGroup::composeAdapters(std::span<const WeightedAdapter> terms) const {
  assert(!terms.empty());
  auto composed = std::make_shared<PreparedAdapter>(registered());
  composed->content_hash = composedHash(terms);
  std::vector<ComposedTerm> ids;
  for (const WeightedAdapter& term : terms) ids.push_back({term.adapter->id, term.weight});
  const std::vector<std::byte> command = encodeCompose(composed->id, ids);
  for (const auto& rank : ranks_->ranks) rank->adapter(command);
  return composed;
}

const Session& RankGroup::session(int32_t rank) const { return ranks_->at(rank).session(); }

}  // namespace chorus
