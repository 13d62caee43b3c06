// All ranks of an engine in this process. Runs steps of the whole network and prepares adapters for all ranks.
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

// Rank r = pp_rank * tp_size + tp_rank uses the file rank{r}.engine and has its own session, backend and thread. Rank 0
// uses the caller's thread.
class RankGroup {
 public:
  // Loads every rank file of an engine directory. Throws Error.
  static std::vector<std::shared_ptr<const Engine>> loadEngines(const std::filesystem::path& dir);

  // engines: all ranks of one directory, in order. backend.threads: number of threads of the process (0: one per core).
  // A step runs on one pipeline stage at a time, so the ranks of each stage share this number. Throws Error.
  RankGroup(std::vector<std::shared_ptr<const Engine>> engines, const BackendOptions& backend,
            const SessionOptions& options);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Runs one step on all ranks. The logits, [input.logits_rows, logitsWidth(input, vocab_size)] float32 in host memory,
  // are valid until the next run. If ranks fail, throws the error of the first one; the next step can succeed. Not
  // thread-safe.
  std::span<const float> run(const StepInput& input);

  // Prepares a whole (unsharded) adapter for every rank and normalises its magnitudes with the base weights.
  // Thread-safe; may run during steps. Throws Error(kUnsupported) if the engine was built without --lora_plugin or
  // --dora_plugin, if it does not enable one of the adapter's modules, or if the adapter adds too many tokens.
  std::shared_ptr<const PreparedAdapter> prepareAdapter(const Adapter& adapter) const;
  // The number of bytes that the prepared adapter will take on all ranks. Throws the Errors of checkServable().
  int64_t preparedBytes(const Adapter& adapter) const;

  // Rank 0's engine. Its configuration and limits are those of every rank.
  const Engine& engine() const { return *engines_.front(); }
  int32_t size() const { return static_cast<int32_t>(engines_.size()); }
  const Session& session(int32_t rank) const { return *ranks_[static_cast<size_t>(rank)].session; }

 private:
  struct Rank {
    std::unique_ptr<Communicator> tensor, pipeline;  // null if there is only one rank of that kind
    std::unique_ptr<Session> session;
    std::span<const float> logits;
  };
  void runRank(Rank& rank);
  void work(Rank& rank);

  std::vector<std::shared_ptr<const Engine>> engines_;
  WeightTable table_;
  std::vector<std::unique_ptr<LocalGroup>> groups_;  // one for each stage, then one for each tp_rank
  std::vector<Rank> ranks_;

  // State of the current step.
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const StepInput* input_ = nullptr;
  uint64_t step_ = 0;
  int32_t running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;          // of the first rank that failed
  std::vector<std::thread> threads_;  // of ranks 1 and up; declared last, because they use the members above
};

}  // namespace chorus
