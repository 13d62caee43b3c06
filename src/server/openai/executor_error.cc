#include "server/openai/executor_error.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "server/client_message.h"

namespace chorus::server {
namespace {

// The executor's error text for one request. If it names a member of a composition by its id, the id is replaced by the
// adapter's name.
struct ExecutorText {
  std::string message;
  std::string model;  // the model or adapter that the text is about
};

ExecutorText withNames(std::string message, const ServedModel& model, const ModelCatalog& models) {
  for (const executor::WeightedLora& term : model.composition) {
    for (const char* form : {"LoRA task {} ", "task={} ", "taskId={}"}) {
      const std::string by_id = fmt::format(fmt::runtime(form), term.taskId);
      const size_t at = message.find(by_id);
      const bool whole = by_id.ends_with(' ') || at + by_id.size() == message.size();
      if (at == std::string::npos || !whole) continue;
      for (const auto& adapter : models.list()) {
        if (adapter->adapter_id != term.taskId) continue;
        return {message.replace(at, by_id.size(), fmt::format("adapter `{}` ", adapter->name)), adapter->name};
      }
    }
  }
  return {std::move(message), model.name};
}

}  // namespace

ApiError fromExecutor(const executor::Response& response, const ServedModel& served, const ModelCatalog& models) {
  using Code = executor::ResponseErrorCode;
  const auto [message, model] = withNames(clientMessage(response.getErrorMsg()), served, models);
  switch (response.getErrorCode()) {
    case Code::kINVALID_ARGUMENT:
    case Code::kUNSUPPORTED:
    case Code::kCORRUPT:
      return ApiError::invalid(message);
    case Code::kNOT_FOUND:
      return ApiError::modelNotFound(model);
    case Code::kBUSY:
      return ApiError::adapterCacheFull(model);
    case Code::kTOO_LARGE:
      return ApiError::adapterTooLarge(model);
    case Code::kEXHAUSTED:
      return ApiError::unavailable("The server is out of memory; try again later.");
    case Code::kCONFLICT:
      return ApiError::conflict(message);
    case Code::kINTERNAL:
      break;
  }
  return ApiError::internal(message);
}

}  // namespace chorus::server
