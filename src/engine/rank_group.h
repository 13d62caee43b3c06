// All ranks of an engine in this process: one step of the whole network, and adapters for all of it.
#pragma once

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "comm/local.h"
#include "engine/session.h"

namespace chorus {

// Rank r = pp_rank * tp_size + tp_rank holds file rank{r}.engine, with a session, a backend and a thread of
// its own; rank 0's is the caller's.
class RankGroup {
 public:
  // Every rank file of an engine directory. Throws Error.
  static std::vector<std::shared_ptr<const Engine>> loadEngines(const std::filesystem::path& dir);

  // engines: all of one directory, by rank. backend.threads is what the process may use (0: all cores): a
  // step's work is on one pipeline stage at a time, so each stage's ranks share that number. Throws Error.
  RankGroup(std::vector<std::shared_ptr<const Engine>> engines, const BackendOptions& backend,
            const SessionOptions& options);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Runs one step on all ranks. The logits, [input.logits_rows, logitsWidth(input, vocab_size)] float32 in host memory,
  // are valid until the next run. Throws what the first rank to fail threw; the next step may go well. Not thread-safe.
  std::span<const float> run(const StepInput& input);

  // Prepares an adapter, given whole, for every rank, its magnitudes normalised against the base weights.
  // Thread-safe; may run while steps do. Throws Error(kUnsupported) when the engine was built without
  // --lora_plugin or --dora_plugin or does not enable one of the adapter's modules.
  std::shared_ptr<const PreparedAdapter> prepareAdapter(const Adapter& adapter) const;
  // The same checks, and the bytes that preparing it will take over all ranks.
  int64_t preparedBytes(const Adapter& adapter) const;

  // Rank 0's: configuration and limits are those of every rank.
  const Engine& engine() const { return *engines_.front(); }
  int32_t size() const { return static_cast<int32_t>(engines_.size()); }
  const Session& session(int32_t rank) const { return *ranks_[static_cast<size_t>(rank)].session; }

 private:
  struct Rank {
    std::unique_ptr<Communicator> tensor, pipeline;  // null where there is one rank of that kind
    std::unique_ptr<Session> session;
    std::span<const float> logits;
  };
  void runRank(Rank& rank);
  void work(Rank& rank);

  std::vector<std::shared_ptr<const Engine>> engines_;
  WeightTable table_;
  std::vector<std::unique_ptr<LocalGroup>> groups_;  // of each stage, then of each tensor-parallel rank
  std::vector<Rank> ranks_;

  // The step in hand, and what is left of it.
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const StepInput* input_ = nullptr;
  uint64_t step_ = 0;
  int32_t running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;          // of the first rank that failed
  std::vector<std::thread> threads_;  // of ranks 1 and up; last: they use all of the above
};

}  // namespace chorus
