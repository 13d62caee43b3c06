// Errors because of one adapter.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "chorus/response.h"

namespace chorus {

// what() is TensorRT-LLM's text with the task id where it has one. fault() is the same for callers that know the
// adapter by another name.
class AdapterError : public Error {
 public:
  AdapterError(ErrorCode code, std::string_view text, executor::AdapterFault fault)
      : Error(code, text), fault_(std::move(fault)) {}
  const executor::AdapterFault& fault() const { return fault_; }

 private:
  executor::AdapterFault fault_;
};

// The adapter's files or tensors could not be loaded. reason: one line.
inline AdapterError loadFailed(ErrorCode code, uint64_t task_id, std::string_view reason) {
  return {code,
          fmt::format("Error storing task={} in PEFT cache -- {}", task_id, reason),
          {.taskId = task_id, .reason = std::string(reason), .loading = true}};
}

// code: kBusy, or kTooLarge if the adapter never fits.
inline AdapterError cacheFull(ErrorCode code, uint64_t task_id) {
  return {code,
          fmt::format("PEFT Cache is full. Could not store taskId={}", task_id),
          {.taskId = task_id, .reason = "does not fit into the adapter cache"}};
}

// reason: what stands behind "LoRA task 7", such as "is unknown".
inline AdapterError unusable(ErrorCode code, uint64_t task_id, std::string_view reason) {
  return {code, fmt::format("LoRA task {} {}", task_id, reason), {.taskId = task_id, .reason = std::string(reason)}};
}

}  // namespace chorus
