// GET /v1/models and /v1/models/{id}.
#pragma once

#include <string_view>

#include "server/http/http.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

HttpResponse listModels(const ModelCatalog& models);
// encodedName: the name as it is in the URL, percent-encoded. Throws ApiError model_not_found.
HttpResponse describeModel(const ModelCatalog& models, std::string_view encodedName);

}  // namespace chorus::server
