// Requests of OpenAI's Responses API, translated to a chat.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/openai/openai_types.h"

namespace chorus::server {

struct ResponseRequest {
  ChatRequest chat;
  // Fields that the answer repeats.
  std::optional<std::string> instructions;
  OrderedJson metadata = OrderedJson::object();
  std::string tool_choice = "auto";
};

// The instructions are the first system message. A message of the role developer is a system message, because chat
// templates know only that role. Throws ApiError with status 400 that names the field, and what parseRequestJson
// throws.
ResponseRequest parseResponseRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory);

}  // namespace chorus::server
