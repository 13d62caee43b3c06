#include "server/access/fair_share.h"

#include <algorithm>

#include "server/access/api_keys.h"

namespace chorus::server {

std::optional<executor::FairShare> fairShareOf(FairBy by, const HttpRequest& request, const ServedModel& model) {
  if (by == FairBy::kTurns) return std::nullopt;
  executor::FairShare share;
  if (by == FairBy::kClients) {
    if (request.client != nullptr) share.group = request.client->id();
    if (request.key != nullptr) share.weight = request.key->weight;
    return share;
  }
  const auto weight_of = [&](const std::string& adapter) {
    return request.keys != nullptr ? request.keys->weightOfAdapter(adapter) : 1;
  };
  // The base model is group 0.
  if (model.adapter_id) {
    share.group = *model.adapter_id + 1;
    share.weight = weight_of(model.name);
  } else if (!model.composed_of.empty()) {
    // One group for all compositions of a client, who could otherwise have as many shares as there are orders of a few
    // adapters. Ids of adapters are small, so the highest bit keeps it apart from them.
    share.group = (request.client != nullptr ? request.client->id() : 0) | executor::IdType{1} << 63;
    share.weight = weight_of(model.composed_of.front());
    for (const std::string& name : model.composed_of) share.weight = std::min(share.weight, weight_of(name));
  }
  return share;
}

}  // namespace chorus::server
