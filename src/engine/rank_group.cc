#include "engine/rank_group.h"

#include <algorithm>
#include <utility>

#include "base/cpu_features.h"
#include "engine/engine_layout.h"

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

RankGroup::RankGroup(std::vector<std::shared_ptr<const Engine>> engines, const BackendOptions& backend,
                     const SessionOptions& options)
    : engines_(std::move(engines)), table_(engine().architecture().weightTable(engine().config())) {
  const ModelConfig& config = engine().config();
  const Mapping& mapping = config.mapping;
  const int threads = backend.threads > 0 ? backend.threads : availableCores();
  BackendOptions each = backend;
  each.threads = std::max(1, threads / mapping.tp_size);
  // With more threads than cores, idle threads that spin would take cores from threads that work.
  if (each.threads * size() > availableCores()) each.spin_us = 0;
  const int spin_us = size() > availableCores() || each.spin_us == 0 ? 0 : kSpinMicroseconds;

  const int64_t longest_row = std::max({config.vocab_size, config.hidden_size, config.embedding_size});
  if (mapping.tp_size > 1) {
    for (int32_t stage = 0; stage < mapping.pp_size; ++stage) {
      groups_.push_back(std::make_unique<LocalGroup>(mapping.tp_size, longest_row, spin_us));
    }
  }
  const size_t pipelines = groups_.size();
  if (mapping.pp_size > 1) {
    for (int32_t tp_rank = 0; tp_rank < mapping.tp_size; ++tp_rank) {
      groups_.push_back(std::make_unique<LocalGroup>(mapping.pp_size, longest_row, spin_us));
    }
  }
  ranks_.resize(engines_.size());
  for (int32_t i = 0; i < size(); ++i) {
    Rank& rank = ranks_[static_cast<size_t>(i)];
    const std::shared_ptr<Backend> own = createBackend(each);
    if (mapping.tp_size > 1) {
      rank.tensor = groups_[static_cast<size_t>(mapping.ppRank(i))]->communicator(mapping.tpRank(i), *own);
    }
    if (mapping.pp_size > 1) {
      LocalGroup& group = *groups_[pipelines + static_cast<size_t>(mapping.tpRank(i))];
      rank.pipeline = group.communicator(mapping.ppRank(i), *own);
    }
    rank.session = std::make_unique<Session>(engines_[static_cast<size_t>(i)], own, options,
                                             RankLinks{i, rank.tensor.get(), rank.pipeline.get()});
  }
  for (size_t i = 1; i < ranks_.size(); ++i) threads_.emplace_back([this, i] { work(ranks_[i]); });
}

RankGroup::~RankGroup() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::span<const float> RankGroup::run(const StepInput& input) {
  if (size() == 1) return ranks_.front().session->run(input);
  {
    const std::lock_guard lock(mutex_);
    input_ = &input;
    running_ = size() - 1;
    ++step_;
  }
  begin_.notify_all();
  runRank(ranks_.front());
  std::unique_lock lock(mutex_);
  end_.wait(lock, [this] { return running_ == 0; });
  if (error_ != nullptr) {
    for (const auto& group : groups_) group->reset();
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  // The logits are on the first rank of the last stage.
  return ranks_[static_cast<size_t>(size() - engine().config().mapping.tp_size)].logits;
}

// A rank that fails aborts the collectives, so that the other ranks do not wait for it. The errors that the other ranks
// then throw are dropped.
void RankGroup::runRank(Rank& rank) {
  try {
    rank.logits = rank.session->run(*input_);
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      if (error_ == nullptr) error_ = std::current_exception();
    }
    for (const auto& group : groups_) group->abort();
  }
}

void RankGroup::work(Rank& rank) {
  std::unique_lock lock(mutex_);
  for (uint64_t done = 0;;) {
    begin_.wait(lock, [&] { return stop_ || step_ != done; });
    if (stop_) return;
    done = step_;
    lock.unlock();
    runRank(rank);
    lock.lock();
    if (--running_ == 0) end_.notify_one();
  }
}

}  // namespace chorus
