// Reads the fields of a chat request that vLLM defines for the chat template.
#pragma once

#include "server/openai/request_json.h"
#include "text/text_codec.h"

namespace chorus::server {

// Reads "chat_template", "chat_template_kwargs", "documents", "add_generation_prompt" and "continue_final_message".
// Throws ApiError with status 400 that names the field.
ChatRendering readChatRendering(const FieldReader& fields);

}  // namespace chorus::server
