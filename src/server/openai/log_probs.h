// Log probabilities in the two shapes of the OpenAI API. A token that holds a part of a character is written as
// "bytes:\xf0\x9f", as OpenAI does.
#pragma once

#include <string>
#include <vector>

#include "server/openai/generation.h"

namespace chorus::server {

// Chat: {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}; null when not asked for.
OrderedJson chatLogProbs(const TextCodec& text, const GenerationOptions& options,
                         const std::vector<TokenLogProb>& tokens);

// Completions: parallel arrays; top_logprobs has the chosen token beside the likeliest ones. offset is where the first
// token's text begins in the choice's text, in characters; moved past them.
OrderedJson completionLogProbs(const TextCodec& text, const GenerationOptions& options,
                               const std::vector<TokenLogProb>& tokens, int64_t& offset);

// Objects of arrays, joined member by member as text: log probabilities arrive in pieces, and as text they take a tenth
// of the memory that they take as JSON values.
class JoinedArrays {
 public:
  // object: an object with the members of the first one, or null for nothing. A member that is no array keeps the value
  // that it has in the first object.
  void append(const OrderedJson& object);
  size_t bytes() const { return bytes_; }
  // "null" when nothing was appended. The object is empty afterwards.
  std::string take();

 private:
  struct Member {
    std::string name;
    std::string text;  // of the array without its brackets, or of the value
    bool array;
  };
  std::vector<Member> members_;
  size_t bytes_ = 0;
};

}  // namespace chorus::server
