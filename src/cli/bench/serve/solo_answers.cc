#include "cli/bench/serve/solo_answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace chorus {
namespace {

// The surroundings of `place`.
std::string excerpt(const std::string& text, size_t place) {
  constexpr size_t kBefore = 24, kBytes = 72;
  const size_t begin = place - std::min(place, kBefore);
  return oneLine(text.substr(begin, kBytes));
}

}  // namespace

void SoloAnswers::learn(size_t model, int prompt, const AnswerContent& answer) {
  answers_[{model, prompt, answer.fingerprint()}] = answer.canonical();
}

Comparison SoloAnswers::compare(size_t model, int prompt, const AnswerContent& answer) {
  std::string text = answer.canonical();
  const auto [known, added] = answers_.try_emplace({model, prompt, answer.fingerprint()}, text);
  if (added) return Comparison::kUnknownContent;
  const std::string& alone = known->second;
  if (text == alone) return Comparison::kEqual;
  if (first_difference_.empty()) {
    const auto place =
        static_cast<size_t>(std::mismatch(text.begin(), text.end(), alone.begin(), alone.end()).first - text.begin());
    first_difference_ = fmt::format("prompt {} at byte {}: got {}, alone {}", prompt, place, excerpt(text, place),
                                    excerpt(alone, place));
  }
  return Comparison::kDifferent;
}

}  // namespace chorus
