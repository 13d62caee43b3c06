#include "server/openai/prompt_tokens.h"

#include <fmt/format.h>

#include "server/errors.h"

namespace chorus::server {

executor::VecTokens encodePrompt(const ApiContext& context, const ServedModel& model, std::string_view text,
                                 bool add_special_tokens, WorkMeter& meter, const std::string& field) {
  const int32_t most = context.engine.maxInputLen();
  try {
    return model.text->encode(text, add_special_tokens, meter, {.max_tokens = static_cast<size_t>(most)});
  } catch (const TooManyTokens&) {
    throw ApiError::invalid(
        fmt::format("This model's maximum context length is {} tokens. However, the {} has more than {} tokens. Please "
                    "reduce its length.",
                    context.engine.maxSeqLen(), field, most),
        field, "context_length_exceeded");
  }
}

executor::VecTokens encodeWhole(const ServedModel& model, std::string_view text, bool add_special_tokens,
                                WorkMeter& meter, ClientCharge& memory) {
  constexpr size_t kBytesOfMemory = 16;  // for a byte of text; see Tokenizer::encode
  const size_t bytes = text.size() * kBytesOfMemory;
  if (memory.client() && bytes > memory.client()->memory().large.limit()) {
    throw ApiError::invalid(
        "The text is too long: its tokens need more than one client's share of the server's memory.", std::nullopt,
        "request_too_complex");
  }
  if (const MemoryAnswer answer = memory.add(bytes); answer != MemoryAnswer::kGranted) {
    throw ApiError::outOfMemory(answer);
  }
  return model.text->encode(text, add_special_tokens, meter);
}

}  // namespace chorus::server
