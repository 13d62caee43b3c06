// The live batch as JSON, for GET /v1/batch (docs/serving.md).
#pragma once

#include "server/access/model_view.h"
#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Adapters that `models` does not have appear without their names.
HttpResponse describeBatch(const ApiContext& context, const ModelView& models);

}  // namespace chorus::server
