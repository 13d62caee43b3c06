// The live batch as JSON, for GET /v1/batch (docs/serving.md).
#pragma once

#include "server/access/model_view.h"
#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Adapters that `models` does not have appear without their names. If the client's key has no admin rights, only the
// sequences of this client appear, because the lengths of others' prompts and answers are not its business.
HttpResponse describeBatch(const ApiContext& context, const ModelView& models, const Client* client);

}  // namespace chorus::server
