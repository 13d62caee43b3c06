// Log probabilities in the two formats of the OpenAI API. A token that is a part of a character is written as
// "bytes:\xf0\x9f", as OpenAI does.
#pragma once

#include <string>
#include <vector>

#include "server/openai/generation.h"

namespace chorus::server {

// [{token, logprob, bytes, top_logprobs}], one for each token.
OrderedJson logProbEntries(const TextCodec& text, const std::vector<TokenLogProb>& tokens);

// Chat: {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}; null when not asked for.
OrderedJson chatLogProbs(const TextCodec& text, const AnswerFields& options, const std::vector<TokenLogProb>& tokens);

// Completions: parallel arrays. top_logprobs has the chosen token in addition to the likeliest ones. offset: start of
// the first token's text in the choice's text, in characters; it is advanced past all tokens.
OrderedJson completionLogProbs(const TextCodec& text, const AnswerFields& options,
                               const std::vector<TokenLogProb>& tokens, int64_t& offset);

// Joins objects of arrays member by member, as text. Log probabilities arrive in pieces, and their text takes a tenth
// of the memory of their JSON values.
class JoinedArrays {
 public:
  // object: null for nothing, or an object with the same members as the first one. A member that is not an array keeps
  // its value of the first object.
  void append(const OrderedJson& object);
  size_t bytes() const { return bytes_; }
  // Appends the JSON of the joined object to `out`, or "null" if nothing was appended, and clears this one member by
  // member.
  void moveTo(std::string& out);

 private:
  struct Member {
    std::string name;
    std::string text;  // the array's elements without the brackets, or the value
    bool array;
  };
  std::vector<Member> members_;
  size_t bytes_ = 0;
};

}  // namespace chorus::server
