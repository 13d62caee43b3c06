#include "server/openai/executor_error.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "server/client_message.h"

namespace chorus::server {
namespace {

// The name of the term of a composition that has this id.
std::optional<std::string> termOf(const ServedModel& model, executor::IdType adapter_id) {
  for (size_t i = 0; i < model.composition.size(); ++i) {
    if (model.composition[i].taskId == adapter_id) return model.composed_of[i];
  }
  return std::nullopt;
}

}  // namespace

ApiError fromExecutor(const executor::Response& response, const ServedModel& served) {
  using Code = executor::ResponseErrorCode;
  const auto& fault = response.getAdapterFault();
  const bool failed_load = fault && fault->loading;
  const auto term = fault ? termOf(served, fault->taskId) : std::nullopt;
  const std::string name = term.value_or(served.name);
  const char* const field = term ? "adapters" : "model";
  const std::string message = clientMessage(fault ? fault->reason : response.getErrorMsg());
  switch (response.getErrorCode()) {
    case Code::kINVALID_ARGUMENT:
    case Code::kUNSUPPORTED:
    case Code::kCORRUPT:
      if (failed_load) return ApiError::adapterRefused(name, message, field);
      if (!fault) return ApiError::invalid(message);
      return ApiError::invalid(fmt::format("The adapter '{}' {}.", name, message), field, "invalid_value");
    case Code::kNOT_FOUND:
      return ApiError::modelNotFound(name);
    case Code::kBUSY:
      return ApiError::adapterCacheFull(name);
    case Code::kTOO_LARGE:
      return ApiError::adapterTooLarge(name);
    case Code::kEXHAUSTED:
      return ApiError::unavailable("The server is out of memory; try again later.");
    case Code::kCONFLICT:
      return ApiError::conflict(message);
    case Code::kINTERNAL:
      break;
  }
  if (!failed_load) return ApiError::internal(message);
  return ApiError::internal(fmt::format("The adapter '{}' could not be loaded: {}", name, message));
}

}  // namespace chorus::server
