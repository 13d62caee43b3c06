#include "server/openai/prompt_tokens.h"

#include <fmt/format.h>

#include <utility>

#include "server/errors.h"

namespace chorus::server {

executor::VecTokens encodePrompt(const ApiContext& context, const ServedModel& model, std::string_view text,
                                 bool add_special_tokens, WorkMeter& meter, const std::string& field) {
  const int32_t most = context.engine.maxInputLen();
  try {
    return model.text->encode(text, add_special_tokens, meter, {.max_tokens = static_cast<size_t>(most)});
  } catch (const TooManyTokens&) {
    throw ApiError::invalid(
        fmt::format("This model's maximum context length is {} tokens. However, '{}' has more than {} tokens. Please "
                    "reduce its length.",
                    context.engine.maxSeqLen(), field, most),
        field, "context_length_exceeded");
  }
}

ApiError promptTooLong(const ApiContext& context, int64_t tokens, std::string_view field) {
  const int64_t context_length = context.engine.maxSeqLen();
  std::string message = fmt::format("This model's maximum context length is {} tokens", context_length);
  if (context.engine.maxInputLen() < context_length - 1) {
    message += fmt::format(", of which the {} may take {}", field, context.engine.maxInputLen());
  }
  message +=
      fmt::format(". However, your request has {} input tokens. Please reduce the length of the {}.", tokens, field);
  return ApiError::invalid(std::move(message), std::string(field), "context_length_exceeded");
}

executor::VecTokens encodeWhole(const ServedModel& model, std::string_view text, bool add_special_tokens,
                                WorkMeter& meter, ClientCharge& memory) {
  // Memory for each byte of text: a token, with the copy that an array makes when it grows. The meter has the
  // tokenizer's own.
  constexpr size_t kBytesOfTokens = 8;
  const size_t bytes = text.size() * kBytesOfTokens;
  checkShare(memory, bytes);
  addCharge(memory, bytes);
  return model.text->encode(text, add_special_tokens, meter);
}

void decodePieces(const ServedModel& model, std::span<const int32_t> tokens, bool skip_special_tokens, WorkMeter& meter,
                  FunctionRef<void(const std::string&)> add) {
  const auto stream = model.text->newStream({.skip_special_tokens = skip_special_tokens, .meter = &meter});
  const auto charged = [&](const std::string& piece) {
    meter.charge(WorkMeter::kObject + piece.size());
    if (!piece.empty()) add(piece);
  };
  for (const int32_t token : tokens) charged(stream->push(token).text);
  charged(stream->finish().text);
}

}  // namespace chorus::server
