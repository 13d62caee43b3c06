#include "cli/evaluation/summary_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr EvaluationTask kTasks[] = {
    {"summarize", "article", "highlights", "ccdv/cnn_dailymail", "test", " TL;DR: "},
    {"summarize_long", "input", "output", "tau/zero_scrolls", "validation", ""},
    {"code_completion", "prompt", "canonical_solution", "openai_humaneval", "test", ""},
    {"eval_context_ppl", "text", "text", "SlimPajama-6B", "test", "", false},
};

// Python's str.strip() removes these control characters too.
bool isPythonSpace(char c) { return c >= 0x1c && c <= 0x1f; }

std::string_view stripped(std::string_view text) {
  for (size_t size = text.size() + 1; size != text.size();) {
    size = text.size();
    text.remove_prefix(leadingSpace(text));
    text.remove_suffix(trailingSpace(text));
    while (!text.empty() && isPythonSpace(text.front())) text.remove_prefix(1);
    while (!text.empty() && isPythonSpace(text.back())) text.remove_suffix(1);
  }
  return text;
}
}  // namespace

std::span<const EvaluationTask> evaluationTasks() { return kTasks; }

const EvaluationTask& findEvaluationTask(std::string_view name) {
  std::string known;
  for (const EvaluationTask& task : kTasks) {
    if (task.name == name) return task;
    known.append(known.empty() ? "" : "|").append(task.name);
  }
  fail(ErrorCode::kInvalidArgument, "--eval_task {}: use {}", name, known);
}

std::string promptText(std::string_view text, std::string_view suffix) {
  constexpr std::string_view kSpaced = " n't", kJoined = "n't";
  const std::string whole = std::string(text).append(suffix);
  std::string prompt(stripped(whole));
  for (size_t at = prompt.find(kSpaced); at != std::string::npos; at = prompt.find(kSpaced, at + kJoined.size())) {
    prompt.replace(at, kSpaced.size(), kJoined);
  }
  return prompt;
}

std::vector<int32_t> promptTokens(const std::string& text, const PromptForm& form, const TextCodec& codec) {
  std::string prompt = text;
  if (form.as_chat) {
    const OrderedJson messages = OrderedJson::array(
        {{{"role", "system"}, {"content", kQwen2SystemMessage}}, {{"role", "user"}, {"content", text}}});
    WorkMeter meter;
    prompt = codec.renderChat(messages, {}, meter);
  }
  std::vector<int32_t> tokens = codec.encode(prompt, form.add_special_tokens);
  if (tokens.size() <= form.max_tokens) return tokens;
  const std::vector<int32_t> inner = codec.encode(prompt, false);
  const auto begin = std::search(tokens.begin(), tokens.end(), inner.begin(), inner.end());
  const size_t around = tokens.size() - std::min(inner.size(), tokens.size());
  const size_t excess = tokens.size() - form.max_tokens;
  if (begin == tokens.end() || around >= form.max_tokens) {
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<int64_t>(excess));
  } else {
    tokens.erase(begin, begin + static_cast<int64_t>(excess));
  }
  return tokens;
}

}  // namespace chorus
