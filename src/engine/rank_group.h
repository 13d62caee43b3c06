// All ranks of an engine in this process. Runs steps of the whole network and prepares adapters for all ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/background_throttle.h"
#include "engine/rank.h"
#include "models/prepared_adapter.h"

namespace chorus {

using MakeThrottleClock = std::function<ThrottleClock()>;
// Takes the backend that was made for a rank and returns the backend that the rank will use.
using WrapBackend = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend> backend, int32_t rank)>;

// Rank r = pp_rank * tp_size + tp_rank uses the file rank{r}.engine and has its own session, backend and threads. The
// group reaches its ranks by commands alone. Rank 0 uses the caller's thread.
class RankGroup {
 public:
  // Loads every rank file of an engine directory. Throws Error.
  static std::vector<std::shared_ptr<const Engine>> loadEngines(const std::filesystem::path& dir);

  // engines: all ranks of one directory, in order. backend.threads: number of threads of the process (0: one per core).
  // A step runs on one pipeline stage at a time, so the ranks of each stage share this number. wrap: null to use the
  // backends themselves. Throws Error.
  RankGroup(std::vector<std::shared_ptr<const Engine>> engines, const BackendOptions& backend,
            const SessionOptions& options, const WrapBackend& wrap = nullptr);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Restricts the calling thread, which will call run(), to the processors of rank 0's first NUMA node. No effect if
  // nothing is placed.
  void placeStepThread() const;

  // Runs one step on all ranks. The logits, [input.logits_rows, logitsWidth(input, vocab_size)] float32 in host memory,
  // are valid until the next run. If ranks fail, throws the error of the first one; the next step can succeed. Not
  // thread-safe.
  std::span<const float> run(const StepInput& input);

  // The following functions are thread-safe and may run during steps. What they return may outlive the group.
  //
  // Prepares a whole (unsharded) adapter for every rank and normalises its magnitudes with the base weights. throttle:
  // of the calling thread, which also does the work of the first rank of each stage; null: the caller does not rest.
  // make_clock: makes the clock of the throttle of each other rank's thread; null: these ranks do not rest. Throws
  // Error(kUnsupported) if the engine was built without --lora_plugin or --dora_plugin, if it does not enable one of
  // the adapter's modules, or if the adapter adds too many tokens, Error(kInvalidArgument) if values are beyond the
  // range of the model's type, and Error(kTooLarge) beyond SessionOptions::max_adapter_bytes.
  std::shared_ptr<const PreparedAdapter> prepareAdapter(const Adapter& adapter, BackgroundThrottle* throttle = nullptr,
                                                        const MakeThrottleClock& make_clock = nullptr) const;
  // The number of bytes that the prepared adapter will take on all ranks. If only shapes were read, copies of the
  // base's values count in full, and values are not checked. Throws the Errors of prepareAdapter(), except kTooLarge.
  int64_t preparedBytes(const Adapter& adapter, BackgroundThrottle* throttle = nullptr,
                        const MakeThrottleClock& make_clock = nullptr) const;
  // Composes adapters of this group (see composeParts()). terms: at least one, each with an empty composition_refusal.
  // The composition takes no memory of its own, but its terms' weights stay in memory as long as it is used.
  std::shared_ptr<const PreparedAdapter> composeAdapters(std::span<const WeightedAdapter> terms) const;

  // Rank 0's engine. Its configuration and limits are those of every rank.
  const Engine& engine() const { return *engines_.front(); }
  int32_t size() const { return static_cast<int32_t>(engines_.size()); }
  const Session& session(int32_t rank) const;

 private:
  struct Ranks;
  // Throws the Errors of prepareAdapter(), except kTooLarge. throttle: is charged; may be null.
  void checkFits(const Adapter& adapter, BackgroundThrottle* throttle) const;
  // Gives an adapter an id. The ranks drop the adapter when the result's `shares` end.
  PreparedAdapter registered() const;
  // Runs kPrepare or kMeasure on all ranks. Returns the sum of their bytes and the first refusal.
  AdapterReport askRanks(RankCommand command, AdapterId id, const Adapter& adapter, BackgroundThrottle* throttle,
                         const MakeThrottleClock& make_clock) const;

  std::vector<std::shared_ptr<const Engine>> engines_;
  std::shared_ptr<Ranks> ranks_;
};

}  // namespace chorus
