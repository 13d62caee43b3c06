#include "server/openai/executor_error.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "server/client_message.h"

namespace chorus::server {
namespace {

// The executor's error text for one request. An adapter's id is replaced by its name.
struct ExecutorText {
  std::string message;       // of a load that failed: only the reason
  std::string model;         // the model or adapter that the text is about
  bool failed_load = false;  // the model is an adapter that could not be loaded
  bool names_term = false;   // the model is an adapter of a composition
};

std::optional<std::string> termOf(const ServedModel& model, executor::IdType adapter_id) {
  for (size_t i = 0; i < model.composition.size(); ++i) {
    if (model.composition[i].taskId == adapter_id) return model.composed_of[i];
  }
  return std::nullopt;
}

ExecutorText withNames(std::string message, const ServedModel& model) {
  if (auto failure = LoadFailure::in(message)) {
    const auto term = termOf(model, failure->adapter_id);
    return {std::move(failure->reason), term.value_or(model.name), true, term.has_value()};
  }
  for (const executor::WeightedLora& term : model.composition) {
    for (const char* form : {"LoRA task {} ", "taskId={}"}) {
      const std::string by_id = fmt::format(fmt::runtime(form), term.taskId);
      const size_t at = message.find(by_id);
      const bool whole = by_id.ends_with(' ') || at + by_id.size() == message.size();
      if (at == std::string::npos || !whole) continue;
      const std::string name = *termOf(model, term.taskId);
      return {message.replace(at, by_id.size(), fmt::format("adapter `{}` ", name)), name, false, true};
    }
  }
  return {std::move(message), model.name};
}

}  // namespace

std::optional<LoadFailure> LoadFailure::in(std::string_view text) {
  constexpr std::string_view kBefore = "Error storing task=", kAfter = " in PEFT cache -- ";
  if (!text.starts_with(kBefore)) return std::nullopt;
  text.remove_prefix(kBefore.size());
  LoadFailure failure{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), failure.adapter_id);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (error != std::errc() || !text.starts_with(kAfter)) return std::nullopt;
  failure.reason = text.substr(kAfter.size());
  return failure;
}

ApiError fromExecutor(const executor::Response& response, const ServedModel& served) {
  using Code = executor::ResponseErrorCode;
  const ExecutorText text = withNames(clientMessage(response.getErrorMsg()), served);
  const char* const field = text.names_term ? "adapters" : "model";
  switch (response.getErrorCode()) {
    case Code::kINVALID_ARGUMENT:
    case Code::kUNSUPPORTED:
    case Code::kCORRUPT:
      if (text.failed_load) return ApiError::adapterRefused(text.model, text.message, field);
      if (text.names_term) return ApiError::invalid(text.message, field, "invalid_value");
      return ApiError::invalid(text.message);
    case Code::kNOT_FOUND:
      return ApiError::modelNotFound(text.model);
    case Code::kBUSY:
      return ApiError::adapterCacheFull(text.model);
    case Code::kTOO_LARGE:
      return ApiError::adapterTooLarge(text.model);
    case Code::kEXHAUSTED:
      return ApiError::unavailable("The server is out of memory; try again later.");
    case Code::kCONFLICT:
      return ApiError::conflict(text.message);
    case Code::kINTERNAL:
      break;
  }
  if (!text.failed_load) return ApiError::internal(text.message);
  return ApiError::internal(fmt::format("The adapter '{}' could not be loaded: {}", text.model, text.message));
}

}  // namespace chorus::server
