// Logits post-processors: clients' functions that change the logits between the network and the sampler.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "chorus/executor_config.h"
#include "chorus/request.h"

namespace chorus {

// Post-processing state of one request, stored in the request.
struct PostProcessing {
  std::shared_ptr<const executor::LogitsPostProcessor> function;  // null: batched, or no post-processor
  bool batched = false;
  executor::BeamTokens tokens;  // one beam: the tokens of the last call
  executor::Tensor logits;      // float32 [1, 1, vocab]: in and out of the last call

  bool wanted() const { return batched || function != nullptr; }
};

// A request whose next token is about to be sampled.
struct PostProcessed {
  PostProcessing* processing = nullptr;
  executor::IdType id = 0;
  std::optional<executor::IdType> client_id;
  std::span<const int32_t> tokens;
  std::span<const float> logits;  // [vocab]; apply() replaces it by the processed logits, stored in `processing`
  std::string error;              // set by apply() if the post-processor failed
};

// The post-processors of an ExecutorConfig. Immutable.
class LogitsPostProcessors {
 public:
  explicit LogitsPostProcessors(const std::optional<executor::LogitsPostProcessorConfig>& config);

  // Throws Error(kInvalidArgument) if the request names an unknown function, has an empty one, or has both a name and a
  // function.
  void check(const executor::Request& request) const;
  // Why a request that passed check() still cannot be served; nullopt if it can. TensorRT-LLM reports this error after
  // queueing, so the executor answers with it instead of throwing.
  std::optional<Error> refusalOf(const executor::Request& request) const;
  // Initial state for a request that passed check().
  PostProcessing of(const executor::Request& request) const;
  // Calls each request's function, then the batched one, on the caller's thread. If a function throws, the requests
  // that it was called for get its error.
  void apply(std::span<PostProcessed> requests) const;

 private:
  void applyBatched(std::span<PostProcessed> requests) const;

  std::unordered_map<std::string, std::shared_ptr<const executor::LogitsPostProcessor>> named_;
  executor::LogitsPostProcessorBatched batched_;  // null: none
};

}  // namespace chorus
