// Log probabilities in the two formats of the OpenAI API, as JSON text. JSON values would take ten times the memory,
// and most of the time in which an answer is written. A token that is a part of a character is written as
// "bytes:\xf0\x9f", as OpenAI does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/generation.h"

namespace chorus::server {

// A JSON object of arrays, as text, to which elements are appended.
class ArraysText {
 public:
  // The text of an array's elements, separated by commas, for the caller to append to. A name that is new adds a member
  // at the end of the object. The reference is valid until another member is added, and until moveTo(). name: a literal
  // without characters to escape.
  std::string& elements(std::string_view name);
  // Adds a member with the value null, unless it has been added.
  void addNull(std::string_view name);

  size_t bytes() const;  // of all elements
  // Appends the JSON of the object to `out`, or "null" if no member was added, and frees this one member by member.
  void moveTo(std::string& out);

 private:
  struct Member {
    std::string_view name;
    std::optional<std::string> elements;  // nullopt: null
  };
  Member& member(std::string_view name);
  std::vector<Member> members_;
};

// Appends {"token", "logprob", "bytes", "top_logprobs"} for each token, after a comma if `elements` is not empty.
void appendLogProbEntries(const TextCodec& text, const std::vector<TokenLogProb>& tokens, std::string& elements);

// The members of a chat's choice: content, with the entries above, and refusal, which is null. Does nothing when log
// probabilities are not asked for.
void appendChatLogProbs(const TextCodec& text, const AnswerFields& options, const std::vector<TokenLogProb>& tokens,
                        ArraysText& out);

// The members of a completion's choice: tokens, token_logprobs, top_logprobs and text_offset. top_logprobs has the
// chosen token in addition to the likeliest ones. offset: start of the first token's text in the choice's text, in
// characters; it is advanced past all tokens. Does nothing when log probabilities are not asked for.
void appendCompletionLogProbs(const TextCodec& text, const AnswerFields& options,
                              const std::vector<TokenLogProb>& tokens, int64_t& offset, ArraysText& out);

}  // namespace chorus::server
