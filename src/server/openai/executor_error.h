// Errors of the executor as clients see them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chorus/response.h"
#include "server/errors.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// An executor's text about an adapter that could not be loaded: "Error storing task=ID in PEFT cache -- REASON".
struct LoadFailure {
  executor::IdType adapter_id;
  std::string reason;

  // Returns nullopt for other texts.
  static std::optional<LoadFailure> in(std::string_view text);
};

// Translates the error of a response to a request for `served`; response.hasError() must be true. Adapters are named by
// their names instead of their ids, and paths of the server are shortened (clientMessage()).
ApiError fromExecutor(const executor::Response& response, const ServedModel& served);

}  // namespace chorus::server
