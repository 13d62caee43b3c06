// Any bytes are either parsed or refused with an ApiError of status 400 whose body is JSON.
// parses: src/server/openai/openai_types.cc src/server/openai/request_json.cc src/server/openai/chat_messages.cc
// parses: src/server/openai/request_fields.cc src/server/openai/option_fields.cc src/server/openai/content_parts.cc
// parses: src/server/openai/response_request.cc src/server/anthropic/messages_request.cc
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/fuzz_target.h"
#include "server/anthropic/messages_request.h"
#include "server/errors.h"
#include "server/openai/openai_types.h"
#include "server/openai/response_request.h"
#include "server/openai/tokenize.h"

namespace {

using chorus::WorkMeter;
using chorus::server::ClientCharge;

void check(bool holds) {
  if (!holds) std::abort();
}

// parse: parses the body and checks the result.
template <typename Parse>
void parseOrRefuse(Parse parse) {
  try {
    WorkMeter meter;
    ClientCharge memory;
    parse(meter, memory);
  } catch (const chorus::server::ApiError& e) {
    check(e.status() == 400 && chorus::Json::parse(e.body()).contains("error"));
  }
}

void checkOptions(const chorus::server::GenerationOptions& options) {
  check(!options.model.empty() && options.choices >= 1);
}

// A conversation that was made from another API's: every message has a role and a text, one that joins neighbours none
// of the same role.
void checkConversation(const chorus::server::ChatRequest& chat, bool joined) {
  check(!chat.options.model.empty() && !chat.messages.empty());
  check(chat.options.max_tokens.value_or(1) >= 1);
  std::string_view before;
  for (const auto& message : chat.messages) {
    const auto& role = message["role"].get_ref<const std::string&>();
    check(!role.empty() && message["content"].is_string() && message.size() == 2);
    check(role != before || !(joined || role == "system"));
    before = role;
  }
}

}  // namespace

// An empty input takes under 100 us. The rest of the time limit allows for seven parsers that each format and throw an
// error, and for cache misses that other programs cause. The memory limit covers the error messages and the first
// tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 1000, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  using namespace chorus::server;
  parseOrRefuse([&](WorkMeter&, ClientCharge&) { checkOptions(parseCompletionRequest(body).options); });
  parseOrRefuse([&](WorkMeter&, ClientCharge&) { checkOptions(parseChatRequest(body).options); });
  parseOrRefuse([&](WorkMeter& meter, ClientCharge& memory) {
    checkConversation(parseResponseRequest(body, meter, memory).chat, false);
  });
  parseOrRefuse([&](WorkMeter& meter, ClientCharge& memory) {
    const ChatRequest chat = parseMessagesRequest(body, meter, memory);
    check(chat.options.max_tokens.has_value());
    checkConversation(chat, true);
  });
  parseOrRefuse([&](WorkMeter& meter, ClientCharge& memory) {
    checkConversation(parseCountTokensRequest(body, meter, memory), true);
  });
  parseOrRefuse([&](WorkMeter& meter, ClientCharge& memory) {
    const TokenizeRequest request = parseTokenizeRequest(body, meter, memory);
    check(request.prompt.has_value() == request.chat.messages.empty());
  });
  parseOrRefuse([&](WorkMeter& meter, ClientCharge& memory) {
    for (const int32_t token : parseDetokenizeRequest(body, meter, memory).tokens) check(token >= 0);
  });
}
