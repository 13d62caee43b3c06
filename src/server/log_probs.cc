#include "server/log_probs.h"

#include "server/errors.h"

namespace chorus::server {
namespace {

std::string tokenText(const TextCodec& text, int32_t token) { return text.decode(std::span(&token, 1), false); }

// text_offset counts characters, as clients index strings.
int64_t characters(std::string_view utf8) {
  int64_t count = 0;
  for (const char c : utf8) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

void checkLogProbs(const ApiContext& context, const GenerationOptions& options) {
  if (!options.logProbs) return;
  if (!context.engine.returnsLogProbs()) {
    throw ApiError::invalid("Log probabilities are not supported; leave 'logprobs' out.", "logprobs",
                            "unsupported_parameter");
  }
  const bool greedy = options.temperature.value_or(context.defaults.temperature) == 0.0;
  if (options.topLogProbs > (greedy ? 1 : 0)) {
    throw ApiError::invalid("Log probabilities of further alternatives are not supported; ask for those of the chosen "
                            "tokens only.",
                            "top_logprobs", "unsupported_parameter");
  }
}

OrderedJson chatLogProbs(const TextCodec& text, const GenerationOptions& options,
                         const std::vector<TokenLogProb>& tokens) {
  if (!options.logProbs) return nullptr;
  OrderedJson content = OrderedJson::array();
  for (const TokenLogProb& token : tokens) {
    const std::string piece = tokenText(text, token.token);
    OrderedJson bytes = OrderedJson::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    OrderedJson entry;
    entry["token"] = piece;
    entry["logprob"] = token.logProb;
    entry["bytes"] = std::move(bytes);
    OrderedJson alternatives = OrderedJson::array();
    if (options.topLogProbs > 0) alternatives.push_back(entry);
    entry["top_logprobs"] = std::move(alternatives);
    content.push_back(std::move(entry));
  }
  return OrderedJson{{"content", std::move(content)}, {"refusal", nullptr}};
}

OrderedJson completionLogProbs(const TextCodec& text, const GenerationOptions& options,
                               const std::vector<TokenLogProb>& tokens, int64_t& offset) {
  if (!options.logProbs) return nullptr;
  OrderedJson pieces = OrderedJson::array(), values = OrderedJson::array(), offsets = OrderedJson::array();
  OrderedJson alternatives = OrderedJson::array();
  for (const TokenLogProb& token : tokens) {
    const std::string piece = tokenText(text, token.token);
    pieces.push_back(piece);
    values.push_back(token.logProb);
    offsets.push_back(offset);
    if (options.topLogProbs > 0) {
      OrderedJson one = OrderedJson::object();
      one[piece] = token.logProb;
      alternatives.push_back(std::move(one));
    }
    offset += characters(piece);
  }
  OrderedJson json;
  json["tokens"] = std::move(pieces);
  json["token_logprobs"] = std::move(values);
  json["top_logprobs"] = options.topLogProbs > 0 ? std::move(alternatives) : OrderedJson();
  json["text_offset"] = std::move(offsets);
  return json;
}

}  // namespace chorus::server
