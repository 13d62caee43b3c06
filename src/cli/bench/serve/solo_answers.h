// The answers to requests that were alone, and the comparison of later answers to the same requests with them.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "cli/bench/serve/answer_content.h"
#include "cli/bench/serve/request_record.h"

namespace chorus {

// Not thread-safe.
class SoloAnswers {
 public:
  void learn(size_t model, int prompt, const AnswerContent& answer);
  // Compares byte for byte with the answer to this prompt by the same weights (AnswerContent::fingerprint). An answer
  // by weights that are not known yet is kUnknownContent, and later ones are compared with it: the weights of a model
  // may be replaced during the load.
  Comparison compare(size_t model, int prompt, const AnswerContent& answer);
  // One line about the first difference: where it is, and what both answers have there. Empty without a difference.
  const std::string& firstDifference() const { return first_difference_; }
  size_t size() const { return answers_.size(); }

 private:
  std::map<std::tuple<size_t, int, std::string>, std::string> answers_;  // model, prompt, fingerprint -> canonical
  std::string first_difference_;
};

}  // namespace chorus
