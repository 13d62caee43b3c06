// Prompts of an evaluation, made as TensorRT-LLM's summarize.py makes them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_codec.h"

namespace chorus {

// A value of --eval_task: where the texts and references of the task are, and how they are used.
struct EvaluationTask {
  std::string_view name;              // --eval_task
  std::string_view input, reference;  // the columns of the data file
  std::string_view dataset, split;    // name of the data set and of its part
  std::string_view suffix;            // appended to each text
  bool scores_answers = true;         // answers are compared with references
};
std::span<const EvaluationTask> evaluationTasks();
// Throws Error that lists the tasks.
const EvaluationTask& findEvaluationTask(std::string_view name);

// The system message with which models of the kinds qwen2 and qwen2_moe get a text as a chat message.
inline constexpr std::string_view kQwen2SystemMessage =
    "You are a helpful assistant, please summarize the article entered by the user with one or two sentences.";

// Returns the text followed by the suffix. White space is removed at both ends, and the space before "n't".
std::string promptText(std::string_view text, std::string_view suffix);

struct PromptForm {
  bool as_chat = false;  // the text is a user's message after kQwen2SystemMessage, in the tokenizer's chat template
  bool add_special_tokens = true;
  size_t max_tokens = 923;
};
// The tokens of a prompt. If there are more than max_tokens, the beginning of the text is left out, but the special
// tokens around it stay, as when a tokenizer of transformers truncates on the left.
std::vector<int32_t> promptTokens(const std::string& text, const PromptForm& form, const TextCodec& codec);

}  // namespace chorus
