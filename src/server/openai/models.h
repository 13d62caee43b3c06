// GET /v1/models and /v1/models/{id}.
#pragma once

#include <string_view>

#include "server/http/http.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

HttpResponse listModels(const ModelCatalog& models);
// encoded_name: the name as it is in the URL, percent-encoded. Throws ApiError model_not_found.
HttpResponse describeModel(const ModelCatalog& models, std::string_view encoded_name);

}  // namespace chorus::server
