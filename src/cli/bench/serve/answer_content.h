// The content of an answer that the model and the request determine, which excludes ids and times. Equal answers have
// equal content, however their streams were cut into events.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json.h"

namespace chorus {

class AnswerContent {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // Adds one event of a stream of completions or chat completions; `bytes` is its size. Parts of other types than
  // OpenAI's are left out. Throws Error(kTooLarge) when the events exceed kMostBytes.
  void add(const Json& chunk, size_t bytes);

  // JSON of each choice's text, log probabilities and reasons to finish, and of the numbers of tokens.
  std::string canonical() const;
  // The last system_fingerprint, which names the weights that made the answer; empty: the server sent none.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  struct Choice {
    std::string text;
    Json log_probabilities = Json::object();
    Json finish_reason, stop_reason;
  };
  void addChoice(const Json& choice);

  std::map<uint64_t, Choice> choices_;
  Json usage_ = Json::object();
  std::string fingerprint_;
  size_t bytes_ = 0;
};

}  // namespace chorus
