// Summaries of articles by a model, and what they cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/evaluation/summarize_args.h"
#include "text/text_codec.h"

namespace chorus {

struct Summary {
  size_t article = 0;  // index of the prompt
  std::string text;
  size_t tokens = 0;                 // generated
  std::optional<double> perplexity;  // of prompt and answer, if it was asked for
};
struct Summaries {
  std::vector<Summary> list;  // in the order of the prompts; prompts of too few tokens are left out
  double seconds = 0;         // of all batches together
  Summary first;              // the answer to the first prompt, which runs once before the clock does
};

// Answers prompts in batches. prompts: the texts, before --max_input_length applies. as_chat: see PromptForm.
// Throws Error that names the article if a request fails.
Summaries summarizeWithEngine(const SummarizeArgs& args, const std::vector<std::string>& prompts, bool as_chat,
                              const TextCodec& codec);
// Summarises with transformers' generate() in a Python process (hugging_face.py), with adapters by PEFT. Throws Error
// if it cannot run, or if an adapter is not in PEFT's form.
Summaries summarizeWithTransformers(const SummarizeArgs& args, const std::vector<std::string>& prompts, bool as_chat,
                                    const TextCodec& codec);

// The end token of a run: --end_id, or else the tokenizer's; nullopt if there is none.
std::optional<int32_t> endTokenOf(const SummarizeArgs& args, const TextCodec& codec);

}  // namespace chorus
