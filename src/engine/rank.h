// A rank of an engine: its session, and the adapters that are ready on it. It executes commands (rank_command.h) and
// exchanges data with the other ranks only through communicators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "engine/rank_command.h"
#include "engine/session.h"
#include "models/adapter_table.h"

namespace chorus {

// A rank's communicators. A pointer is null if the rank is the only one of its stage or of its tp_rank.
struct RankCommunicators {
  std::unique_ptr<Communicator> tensor;    // between the ranks of this stage
  std::unique_ptr<Communicator> pipeline;  // between the ranks with the same tp_rank, by stage
  // Between the ranks of this stage, for commands about adapters, which run at the same time as steps.
  std::unique_ptr<Communicator> adapters;
};

// Result of a command about an adapter, on one rank or added up over all ranks.
struct AdapterReport {
  int64_t bytes = 0;                // of the rank's share in device memory
  std::string composition_refusal;  // compositionRefusal() of the share
};

class Rank {
 public:
  // Returns the whole (unsharded) adapter that a kPrepare or kMeasure names. It stays valid during the command.
  using FindAdapter = std::function<const Adapter&(AdapterId)>;

  // Loads the weights and allocates what steps need. Throws Error(kExhausted).
  Rank(std::shared_ptr<const Engine> engine, std::shared_ptr<Backend> backend, const SessionOptions& options,
       RankCommunicators communicators, FindAdapter find_adapter);

  // Runs a kStep and returns what Session::run() returns. Not thread-safe.
  std::span<const float> step(std::span<const std::byte> command);
  // Does any other command. All ranks of a stage get each kPrepare, one after another. Thread-safe; may run during
  // steps. Errors leave the rank without the adapter. throttle: of the calling thread, charged for work on the
  // adapter's values; may be null.
  AdapterReport adapter(std::span<const std::byte> command, BackgroundThrottle* throttle = nullptr);

  const Session& session() const { return session_; }
  Session& session() { return session_; }

 private:
  AdapterReport prepare(AdapterId id, BackgroundThrottle* throttle);
  AdapterReport measure(AdapterId id, BackgroundThrottle* throttle) const;
  AdapterReport compose(AdapterId id, std::span<const ComposedTerm> terms);
  Adapter shareOf(AdapterId id, BackgroundThrottle* throttle) const;
  void normaliseMagnitudes(Adapter& share, BackgroundThrottle* throttle) const;
  void sumOverRanks(std::span<double> values) const;

  WeightTable table_;
  RankCommunicators communicators_;
  FindAdapter find_adapter_;
  Session session_;
  StepDecoder decoder_;
};

}  // namespace chorus
