// Tokenizes a request's prompt.
#pragma once

#include <string>
#include <string_view>

#include "base/work_meter.h"
#include "chorus/types.h"
#include "server/http/client.h"
#include "server/model/api_context.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// Encodes `text`, the value of `field`. Throws ApiError (400, context_length_exceeded) soon after the first token
// beyond the engine's maxInputLen. Charges the meter and throws what it throws.
executor::VecTokens encodePrompt(const ApiContext& context, const ServedModel& model, std::string_view text,
                                 bool add_special_tokens, WorkMeter& meter, const std::string& field);

// Encodes a text of any length, and adds the memory that this takes to `memory` before. Throws ApiError (400 if it is
// more than one client's share, 429, 503). Charges the meter and throws what it throws.
executor::VecTokens encodeWhole(const ServedModel& model, std::string_view text, bool add_special_tokens,
                                WorkMeter& meter, ClientCharge& memory);

}  // namespace chorus::server
