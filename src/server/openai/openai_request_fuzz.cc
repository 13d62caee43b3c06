// Any bytes are either parsed or refused with an ApiError of status 400 whose body is JSON.
// parses: src/server/openai/openai_types.cc src/server/openai/request_json.cc src/server/openai/chat_messages.cc
#include <cstdlib>

#include "server/errors.h"
#include "server/openai/openai_types.h"

namespace {

template <typename Parse>
void parseOrRefuse(Parse parse, std::string_view body) {
  try {
    const auto request = parse(body);
    if (request.options.model.empty() || request.options.choices < 1) std::abort();
  } catch (const chorus::server::ApiError& e) {
    if (e.status() != 400 || !chorus::Json::parse(e.body()).contains("error")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  parseOrRefuse(chorus::server::parseCompletionRequest, body);
  parseOrRefuse(chorus::server::parseChatRequest, body);
  return 0;
}
