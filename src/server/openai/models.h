// GET /v1/models and /v1/models/{id}.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/work_meter.h"
#include "server/access/model_view.h"
#include "server/http/http.h"

namespace chorus::server {

// max_model_len: the context length in tokens, which the adapters share with the base model.
// The memory of the list is charged to the client.
HttpResponse listModels(const ModelView& models, int32_t max_model_len, const std::shared_ptr<Client>& client);
// Charges the work of a list of all models.
inline void chargeList(WorkMeter& meter, const ModelCatalog& models) {
  constexpr uint64_t kWorkOfModel = 2048;
  meter.charge(kWorkOfModel * models.size());
}
// Decodes a percent-encoded part of a URL.
std::string percentDecode(std::string_view text);
// encoded_name: the name as it is in the URL, percent-encoded. Throws ApiError model_not_found.
HttpResponse describeModel(const ModelView& models, int32_t max_model_len, std::string_view encoded_name);

}  // namespace chorus::server
