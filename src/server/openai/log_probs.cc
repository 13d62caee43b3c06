#include "server/openai/log_probs.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/free_text.h"
#include "server/openai/request_json.h"
#include "text/unicode.h"

namespace chorus::server {
namespace {

std::string nameOf(const std::string& bytes) {
  if (toValidUtf8(bytes) == bytes) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

// Number of characters that a token adds to the text that the client sees.
int64_t charactersOf(const TextCodec& text, const AnswerFields& options, int32_t token, const std::string& bytes) {
  if (options.skip_special_tokens && text.decode(std::span(&token, 1), true).empty()) return 0;
  int64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// The bytes of tokens, each found once: the alternatives at different positions are often the same tokens.
class KnownBytes {
 public:
  explicit KnownBytes(const TextCodec& text) : text_(text) {}
  const std::string& of(int32_t token) {
    const auto [known, added] = bytes_.try_emplace(token);
    if (added) known->second = text_.tokenBytes(token);
    return known->second;
  }

 private:
  const TextCodec& text_;
  std::unordered_map<int32_t, std::string> bytes_;
};

OrderedJson entryOf(const std::string& bytes, float log_prob) {
  OrderedJson entry = OrderedJson::object();
  entry["token"] = nameOf(bytes);
  entry["logprob"] = log_prob;
  entry["bytes"] = OrderedJson::array();
  for (const char c : bytes) entry["bytes"].push_back(static_cast<unsigned char>(c));
  return entry;
}

}  // namespace

OrderedJson logProbEntries(const TextCodec& text, const std::vector<TokenLogProb>& tokens) {
  OrderedJson content = OrderedJson::array();
  KnownBytes bytes(text);
  for (const TokenLogProb& token : tokens) {
    OrderedJson entry = entryOf(bytes.of(token.token), token.log_prob.value_or(0.0f));
    OrderedJson alternatives = OrderedJson::array();
    for (const auto& [id, log_prob] : token.likeliest) alternatives.push_back(entryOf(bytes.of(id), log_prob));
    entry["top_logprobs"] = std::move(alternatives);
    content.push_back(std::move(entry));
  }
  return content;
}

OrderedJson chatLogProbs(const TextCodec& text, const AnswerFields& options, const std::vector<TokenLogProb>& tokens) {
  if (!options.log_probs) return nullptr;
  return OrderedJson{{"content", logProbEntries(text, tokens)}, {"refusal", nullptr}};
}

OrderedJson completionLogProbs(const TextCodec& text, const AnswerFields& options,
                               const std::vector<TokenLogProb>& tokens, int64_t& offset) {
  if (!options.log_probs) return nullptr;
  OrderedJson pieces = OrderedJson::array(), values = OrderedJson::array(), offsets = OrderedJson::array();
  OrderedJson alternatives = OrderedJson::array();
  KnownBytes known(text);
  for (const TokenLogProb& token : tokens) {
    const std::string& bytes = known.of(token.token);
    const std::string name = nameOf(bytes);
    pieces.push_back(name);
    values.push_back(token.log_prob ? OrderedJson(*token.log_prob) : OrderedJson());
    offsets.push_back(offset);
    offset += charactersOf(text, options, token.token, bytes);
    if (!token.log_prob) {
      alternatives.push_back(nullptr);
      continue;
    }
    OrderedJson one = OrderedJson::object();
    // Different tokens may have the same text. emplace() keeps the first of them, which is the likelier one.
    for (const auto& [id, log_prob] : token.likeliest) one.emplace(nameOf(known.of(id)), log_prob);
    one.emplace(name, *token.log_prob);
    alternatives.push_back(std::move(one));
  }
  OrderedJson json = OrderedJson::object();
  json["tokens"] = std::move(pieces);
  json["token_logprobs"] = std::move(values);
  json["top_logprobs"] = options.top_log_probs > 0 ? std::move(alternatives) : OrderedJson();
  json["text_offset"] = std::move(offsets);
  return json;
}

void JoinedArrays::append(const OrderedJson& object) {
  if (object.is_null()) return;
  const bool first = members_.empty();
  size_t index = 0;
  for (const auto& [name, value] : object.items()) {
    if (first) members_.push_back({name, value.is_array() ? "" : toText(value), value.is_array()});
    Member& member = members_[index++];
    if (!member.array || value.empty()) continue;
    const std::string text = toText(value);
    if (!member.text.empty()) member.text += ',';
    member.text.append(text, 1, text.size() - 2);
    bytes_ += text.size();
  }
}

void JoinedArrays::moveTo(std::string& out) {
  if (members_.empty()) {
    out += "null";
    return;
  }
  char before = '{';
  for (Member& member : members_) {
    out += fmt::format("{}{}:{}", before, toText(member.name), member.array ? "[" : "");
    before = ',';
    out += member.text;
    if (member.array) out += ']';
    freeText(member.text);
  }
  out += '}';
  members_.clear();
  bytes_ = 0;
}

}  // namespace chorus::server
