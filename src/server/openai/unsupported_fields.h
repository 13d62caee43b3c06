// Fields of the OpenAI API and its common extensions that would change the output and are not supported.
#pragma once

#include "server/openai/request_json.h"

namespace chorus::server {

// Throw ApiError (status 400, code unsupported_parameter) that names the first such field with a value that is not
// neutral.
void refuseUnsupportedCompletionFields(const FieldReader& fields);
void refuseUnsupportedChatFields(const FieldReader& fields);

}  // namespace chorus::server
