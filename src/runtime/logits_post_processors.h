// What clients do to the logits of their requests between the network and the sampler.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "chorus/executor_config.h"
#include "chorus/request.h"

namespace chorus {

// A request's part in it, kept with the request.
struct PostProcessing {
  std::shared_ptr<const executor::LogitsPostProcessor> function;  // null: the batched one, or none
  bool batched = false;
  executor::BeamTokens tokens;  // [1], the tokens that it was shown last
  executor::Tensor logits;      // [1, 1, vocab] float32, made at the first call

  bool wanted() const { return batched || function != nullptr; }
};

// A request whose next token is about to be chosen.
struct PostProcessed {
  PostProcessing* processing = nullptr;
  executor::IdType id = 0;
  std::optional<executor::IdType> client_id;
  std::span<const int32_t> tokens;
  std::span<const float> logits;  // [vocab]; afterwards the processed ones, which lie in `processing`
  std::string error;              // afterwards, why it has none
};

// Immutable: what ExecutorConfig names.
class LogitsPostProcessors {
 public:
  explicit LogitsPostProcessors(const std::optional<executor::LogitsPostProcessorConfig>& config);

  // Throws Error (kInvalidArgument): the request names a function that is not there.
  void check(const executor::Request& request) const;
  // Why a request that was checked cannot be served: as TensorRT-LLM finds it, after it was queued.
  std::optional<Error> refusalOf(const executor::Request& request) const;
  // Of a request that was checked.
  PostProcessing of(const executor::Request& request) const;
  // Calls each request's function, then the batched one, on the caller's thread. What throws leaves its error with the
  // requests that it was called for.
  void apply(std::span<PostProcessed> requests) const;

 private:
  void applyBatched(std::span<PostProcessed> requests) const;

  std::unordered_map<std::string, std::shared_ptr<const executor::LogitsPostProcessor>> named_;
  executor::LogitsPostProcessorBatched batched_;  // null: none
};

}  // namespace chorus
