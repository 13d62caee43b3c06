// Tokenizes a request's prompt.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/work_meter.h"
#include "chorus/types.h"
#include "server/errors.h"
#include "server/http/client.h"
#include "server/model/api_context.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// Encodes `text`, the value of `field`. Throws ApiError (400, context_length_exceeded) soon after the first token
// beyond the engine's maxInputLen. Charges the meter and throws what it throws.
executor::VecTokens encodePrompt(const ApiContext& context, const ServedModel& model, std::string_view text,
                                 bool add_special_tokens, WorkMeter& meter, const std::string& field);

// The error (400, context_length_exceeded) of a request with more input tokens than the engine's maxInputLen, or with
// no room for an answer. field: "prompt" or "messages".
ApiError promptTooLong(const ApiContext& context, int64_t tokens, std::string_view field);

// Encodes a text of any length, and adds the memory of its tokens to `memory` before. Throws ApiError (400 if it is
// more than one client's share, 429, 503). Charges the meter and throws what it throws.
executor::VecTokens encodeWhole(const ServedModel& model, std::string_view text, bool add_special_tokens,
                                WorkMeter& meter, ClientCharge& memory);

// Passes the text of tokens to `add`, piece by piece, so that the caller can charge its memory as it grows. Charges the
// meter and throws what it throws.
void decodePieces(const ServedModel& model, std::span<const int32_t> tokens, bool skip_special_tokens, WorkMeter& meter,
                  FunctionRef<void(const std::string&)> add);

}  // namespace chorus::server
