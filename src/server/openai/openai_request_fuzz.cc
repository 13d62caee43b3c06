// Any bytes are either parsed or refused with an ApiError of status 400 whose body is JSON.
// parses: src/server/openai/openai_types.cc src/server/openai/request_json.cc src/server/openai/chat_messages.cc
// parses: src/server/openai/request_fields.cc
#include <cstdlib>

#include "fuzz/fuzz_target.h"
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

// An empty input takes under 20 us. The rest of the time limit allows for two Errors that are formatted and thrown, and
// for cache misses that other programs cause. The memory limit covers the error messages and the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  parseOrRefuse([](std::string_view text) { return chorus::server::parseCompletionRequest(text); }, body);
  parseOrRefuse([](std::string_view text) { return chorus::server::parseChatRequest(text); }, body);
}
