// Parsed requests of the OpenAI API: every value has the right type and is in range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/work_meter.h"
#include "server/http/client.h"
#include "server/openai/model_choice.h"
#include "server/openai/sampling_fields.h"
#include "text/text_codec.h"

namespace chorus::server {

// The fields of a generation that its answer is written by. A copy is small.
struct AnswerFields {
  std::optional<int32_t> max_tokens;  // 0: only the prompt is scored; unset: the model's default
  bool skip_special_tokens = true;
  int32_t choices = 1;    // "n"
  int32_t generated = 1;  // "best_of": number of sequences, of which the `choices` likeliest are sent
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // every chunk of a stream has the usage so far; needs include_usage
  bool log_probs = false;
  bool prompt_log_probs = false;  // of the echoed prompt too
  int32_t top_log_probs = 0;      // alternatives per token

  const AnswerFields& ofAnswer() const { return *this; }
};

// Fields that all generations share. Unset: the model's default.
struct GenerationOptions : AnswerFields {
  std::string model;
  std::vector<AdapterTerm> adapters;            // to be composed; empty: the model as it is
  std::string max_tokens_field = "max_tokens";  // name of the request's field of max_tokens, for errors
  SamplingFields sampling;
  std::vector<std::string> stop;  // none is empty
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // the text includes the stop string or stop token
};

struct CompletionRequest {
  using Prompt = std::variant<std::string, std::vector<int32_t>>;
  GenerationOptions options;
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;
  bool add_special_tokens = true;  // only for prompts that are text
};

struct ChatRequest {
  GenerationOptions options;
  // The array that normalizeMessages() returns: objects with a role. content is a string or null, or absent as in the
  // request.
  OrderedJson messages;
  std::string messages_field = "messages";  // name of their field in the request, for errors
  ChatRendering rendering;
  bool add_special_tokens = false;  // around the rendered prompt
};

// Default limit on the sequences of one request.
inline constexpr int32_t kDefaultMaxChoices = 16;

// Both throw ApiError with status 400 that names the field, and what parseRequestJson throws. max_choices limits n,
// best_of, and each of them times the number of prompts. With one choice for each prompt, up to 1,024 prompts are
// allowed. For fields that these types do not have, see request_fields.h.
CompletionRequest parseCompletionRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory,
                                         int32_t max_choices);
ChatRequest parseChatRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory, int32_t max_choices);
// Overloads without a limit of work and without a charge.
CompletionRequest parseCompletionRequest(std::string_view body, int32_t max_choices = kDefaultMaxChoices);
ChatRequest parseChatRequest(std::string_view body, int32_t max_choices = kDefaultMaxChoices);

}  // namespace chorus::server
