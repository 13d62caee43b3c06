// GET /v1/models and /v1/models/{id}.
#pragma once

#include <string>
#include <string_view>

#include "server/access/model_view.h"
#include "server/http/http.h"

namespace chorus::server {

HttpResponse listModels(const ModelView& models);
// Decodes a percent-encoded part of a URL.
std::string percentDecode(std::string_view text);
// encoded_name: the name as it is in the URL, percent-encoded. Throws ApiError model_not_found.
HttpResponse describeModel(const ModelView& models, std::string_view encoded_name);

}  // namespace chorus::server
