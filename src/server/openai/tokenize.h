// POST /tokenize and /detokenize, in vLLM's shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/openai_types.h"
#include "server/openai/route_description.h"

namespace chorus::server {

struct TokenizeRequest {
  std::optional<std::string> model;   // none: the base model
  std::optional<std::string> prompt;  // none: the conversation is tokenized
  ChatRequest chat;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::optional<std::string> model;  // none: the base model
  std::vector<int32_t> tokens;
  bool skip_special_tokens = false;
};

// Both throw ApiError with status 400 that names the field, and what parseRequestJson throws.
TokenizeRequest parseTokenizeRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory);
DetokenizeRequest parseDetokenizeRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory);

// A RequestWork (preparation.h). The answer has the ids, their number and the context's length. A text may have more
// tokens than the context, because clients count before they shorten a text; its memory is charged to the client.
void handleTokenize(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter);
// A RequestWork. The answer has the text.
void handleDetokenize(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter);

inline constexpr RouteDescription kTokenizeRoute{
    .summary = "Token ids of a text, or of a conversation", .request = FieldOwner::kTokenize, .answer = "Tokens"};
inline constexpr RouteDescription kDetokenizeRoute{
    .summary = "The text of token ids", .request = FieldOwner::kDetokenize, .answer = "Text"};

}  // namespace chorus::server
