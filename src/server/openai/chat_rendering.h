// Reads the fields of a chat request that vLLM defines for the chat template.
#pragma once

#include "server/openai/request_json.h"
#include "text/text_codec.h"

namespace chorus::server {

// Both functions throw ApiError with status 400 that names the field.

// Reads "chat_template", "chat_template_kwargs" and "documents".
ChatRendering readChatTemplate(const FieldReader& fields);
// Reads "add_generation_prompt" and "continue_final_message" too.
ChatRendering readChatRendering(const FieldReader& fields);

}  // namespace chorus::server
