// Chooses the share of the server that a request belongs to.
#pragma once

#include <optional>

#include "chorus/request.h"
#include "server/http/http.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// The values of --fairness.
enum class FairBy {
  kTurns,     // free slots go to the client that runs the fewest sequences; there are no shares
  kClients,   // each client has a share; the weights are those of the keys
  kAdapters,  // each adapter has a share, so has the base model, and so have all compositions of a client
};

// The share of a request for `model`. Without a weight in the file of keys it is 1; that of a composition is the lowest
// of its adapters. nullopt with kTurns.
std::optional<executor::FairShare> fairShareOf(FairBy by, const HttpRequest& request, const ServedModel& model);

}  // namespace chorus::server
