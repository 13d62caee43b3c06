// Requests of Anthropic's Messages API, translated to a chat.
#pragma once

#include <string_view>

#include "server/openai/openai_types.h"

namespace chorus::server {

// "system" becomes the first message. Neighbouring messages of one role become one message. If the last message is the
// assistant's, the answer continues it. Both throw ApiError with status 400 that names the field, and what
// parseRequestJson throws.
ChatRequest parseMessagesRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory);
// Parses a count_tokens request. Of the options, only the model and the adapters are read.
ChatRequest parseCountTokensRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory);

}  // namespace chorus::server
