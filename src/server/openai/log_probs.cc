#include "server/openai/log_probs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_map>

#include "base/free_text.h"
#include "server/openai/request_json.h"
#include "text/unicode.h"

namespace chorus::server {
namespace {

std::string nameOf(const std::string& bytes) {
  if (toValidUtf8(bytes) == bytes) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

// The text as a JSON string. Few names need escapes, and toText() takes several times as long.
std::string quoted(const std::string& valid_utf8) {
  const bool plain = std::ranges::all_of(
      valid_utf8, [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != '"' && c != '\\'; });
  return plain ? '"' + valid_utf8 + '"' : toText(valid_utf8);
}

// Number of characters that a token adds to the text that the client sees.
int64_t charactersOf(const TextCodec& text, const AnswerFields& options, int32_t token, const std::string& bytes) {
  if (options.skip_special_tokens && text.decode(std::span(&token, 1), true).empty()) return 0;
  int64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

struct KnownToken {
  std::string bytes;
  std::string name;  // a JSON string
};

// The texts of tokens, each found once: the alternatives at different positions are often the same tokens.
class KnownTokens {
 public:
  explicit KnownTokens(const TextCodec& text) : text_(text) {}
  const KnownToken& of(int32_t token) {
    const auto [known, added] = tokens_.try_emplace(token);
    if (added) {
      known->second.bytes = text_.tokenBytes(token);
      known->second.name = quoted(nameOf(known->second.bytes));
    }
    return known->second;
  }

 private:
  const TextCodec& text_;
  std::unordered_map<int32_t, KnownToken> tokens_;
};

void appendSeparator(std::string& elements) {
  if (!elements.empty()) elements += ',';
}

// Appends the shortest decimal that a reader parses to the same double. It always has a fraction or an exponent, so
// that readers take it for a floating-point number. Without a finite value it is null.
void appendValue(std::string& out, std::optional<float> log_prob) {
  if (!log_prob || !std::isfinite(*log_prob)) {
    out += "null";
    return;
  }
  const size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", static_cast<double>(*log_prob));
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

// The members that a token and its alternatives have, with an opening but without a closing brace.
void appendEntry(std::string& out, const KnownToken& token, float log_prob) {
  out.append(R"({"token":)").append(token.name).append(R"(,"logprob":)");
  appendValue(out, log_prob);
  out += R"(,"bytes":[)";
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(token.bytes[i]));
  }
  out += ']';
}

// An object of the log probabilities by the names of the tokens. Different tokens may have the same name; then the
// first one counts, which is the likelier one.
void appendAlternatives(std::string& out, KnownTokens& known, const TokenLogProb& token) {
  if (!token.log_prob) {
    out += "null";
    return;
  }
  std::vector<const std::string*> names;
  out += '{';
  const auto add = [&](int32_t id, float log_prob) {
    const std::string& name = known.of(id).name;
    if (std::ranges::any_of(names, [&](const std::string* other) { return *other == name; })) return;
    if (!names.empty()) out += ',';
    names.push_back(&name);
    out.append(name) += ':';
    appendValue(out, log_prob);
  };
  for (const auto& [id, log_prob] : token.likeliest) add(id, log_prob);
  add(token.token, *token.log_prob);
  out += '}';
}

}  // namespace

ArraysText::Member& ArraysText::member(std::string_view name) {
  const auto at = std::ranges::find(members_, name, &Member::name);
  return at == members_.end() ? members_.emplace_back(Member{name, std::nullopt}) : *at;
}

std::string& ArraysText::elements(std::string_view name) {
  std::optional<std::string>& elements = member(name).elements;
  return elements ? *elements : elements.emplace();
}

void ArraysText::addNull(std::string_view name) { member(name); }

size_t ArraysText::bytes() const {
  size_t bytes = 0;
  for (const Member& member : members_) bytes += member.elements ? member.elements->size() : 0;
  return bytes;
}

void ArraysText::moveTo(std::string& out) {
  if (members_.empty()) {
    out += "null";
    return;
  }
  char before = '{';
  for (Member& member : members_) {
    fmt::format_to(std::back_inserter(out), "{}\"{}\":", before, member.name);
    before = ',';
    if (!member.elements) {
      out += "null";
      continue;
    }
    out.append("[").append(*member.elements).append("]");
    freeText(*member.elements);
  }
  out += '}';
  members_.clear();
}

void appendLogProbEntries(const TextCodec& text, const std::vector<TokenLogProb>& tokens, std::string& elements) {
  KnownTokens known(text);
  for (const TokenLogProb& token : tokens) {
    appendSeparator(elements);
    appendEntry(elements, known.of(token.token), token.log_prob.value_or(0.0F));
    elements += R"(,"top_logprobs":[)";
    for (size_t i = 0; i < token.likeliest.size(); ++i) {
      if (i > 0) elements += ',';
      const auto& [id, log_prob] = token.likeliest[i];
      appendEntry(elements, known.of(id), log_prob);
      elements += '}';
    }
    elements += "]}";
  }
}

void appendChatLogProbs(const TextCodec& text, const AnswerFields& options, const std::vector<TokenLogProb>& tokens,
                        ArraysText& out) {
  if (!options.log_probs) return;
  appendLogProbEntries(text, tokens, out.elements("content"));
  out.addNull("refusal");
}

void appendCompletionLogProbs(const TextCodec& text, const AnswerFields& options,
                              const std::vector<TokenLogProb>& tokens, int64_t& offset, ArraysText& out) {
  if (!options.log_probs) return;
  KnownTokens known(text);
  const auto append = [&](std::string_view name, const auto& append_element) {
    std::string& elements = out.elements(name);
    for (const TokenLogProb& token : tokens) {
      appendSeparator(elements);
      append_element(elements, token);
    }
  };
  append("tokens", [&](std::string& elements, const TokenLogProb& token) { elements += known.of(token.token).name; });
  append("token_logprobs",
         [](std::string& elements, const TokenLogProb& token) { appendValue(elements, token.log_prob); });
  if (options.top_log_probs > 0) {
    append("top_logprobs",
           [&](std::string& elements, const TokenLogProb& token) { appendAlternatives(elements, known, token); });
  } else {
    out.addNull("top_logprobs");
  }
  append("text_offset", [&](std::string& elements, const TokenLogProb& token) {
    fmt::format_to(std::back_inserter(elements), "{}", offset);
    offset += charactersOf(text, options, token.token, known.of(token.token).bytes);
  });
}

}  // namespace chorus::server
