#include "server/openai/completions.h"

#include <fmt/format.h>

#include <utility>

#include "base/free_text.h"
#include "server/openai/generation_writer.h"
#include "server/openai/log_probs.h"
#include "server/openai/model_choice.h"
#include "server/openai/openai_types.h"
#include "server/openai/option_fields.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/queue_timeout.h"

namespace chorus::server {
namespace {

constexpr int32_t kDefaultMaxTokens = 16;

class CompletionWriter : public GenerationWriter {
 public:
  // echoes: for each prompt, the text before its answers; empty without echo.
  CompletionWriter(AnswerSetup setup, std::vector<std::string> echoes)
      : GenerationWriter(std::move(setup), {"cmpl-", "text_completion", "text_completion"}),
        echoes_(std::move(echoes)) {}

 protected:
  std::string_view echoOf(int32_t index) const override {
    if (echoes_.empty()) return {};
    return echoes_[static_cast<size_t>(index / options().generated)];
  }

  // With log probabilities, the echo comes with the first of the prompt's.
  bool hasFirstChunks() const override { return !echoes_.empty() && !options().prompt_log_probs; }

  OrderedJson echoChoice(int32_t index, std::string_view text) override {
    return choice(index, text, nullptr, nullptr);
  }

  OrderedJson deltaChoice(const GenerationDelta& delta) override {
    return choice(delta.choice, delta.text, delta.finish_reason ? OrderedJson(*delta.finish_reason) : OrderedJson(),
                  delta.stop_reason);
  }

  void appendLogProbs(const GenerationDelta& delta, ArraysText& out) override {
    offsets_.resize(std::max(offsets_.size(), static_cast<size_t>(delta.choice) + 1));
    int64_t& offset = offsets_[static_cast<size_t>(delta.choice)];
    appendCompletionLogProbs(*model().text, options(), tokensOf(delta), offset, out);
  }

  OrderedJson wholeChoice(const GenerationDelta& everything) override {
    return choice(everything.choice, everything.text, everything.finish_reason.value_or("stop"),
                  everything.stop_reason);
  }

 private:
  static std::vector<TokenLogProb> tokensOf(const GenerationDelta& delta) {
    std::vector<TokenLogProb> all = delta.prompt_log_probs;
    all.insert(all.end(), delta.log_probs.begin(), delta.log_probs.end());
    return all;
  }

  static OrderedJson choice(int32_t index, std::string_view text, OrderedJson finish_reason, OrderedJson stop_reason) {
    OrderedJson json = OrderedJson::object();
    json["index"] = index;
    json["text"] = text;
    json["logprobs"] = nullptr;
    json["finish_reason"] = std::move(finish_reason);
    json["stop_reason"] = std::move(stop_reason);
    return json;
  }

  std::vector<std::string> echoes_;
  std::vector<int64_t> offsets_;
};

// Returns the tokens of `prompt`, not more than the engine takes. Token ids are moved out of it.
executor::VecTokens tokensOf(const ApiContext& context, const ServedModel& model, CompletionRequest::Prompt& prompt,
                             bool add_special_tokens, WorkMeter& meter) {
  executor::VecTokens tokens;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    tokens = encodePrompt(context, model, *text, add_special_tokens, meter, "prompt");
  } else {
    tokens = std::move(std::get<std::vector<int32_t>>(prompt));
    if (std::cmp_greater(tokens.size(), context.engine.maxInputLen())) {
      throw promptTooLong(context, static_cast<int64_t>(tokens.size()), "prompt");
    }
    checkTokenIds("prompt", tokens, context.engine.vocabSize());
  }
  if (tokens.empty()) {
    throw ApiError::invalid("Invalid value for 'prompt': it has no tokens.", "prompt", "invalid_value");
  }
  return tokens;
}

// Returns the text of a prompt for its answers to begin with. Charges it to `memory`, once for each copy.
std::string echoOf(const ServedModel& model, CompletionRequest::Prompt& prompt, const executor::VecTokens& tokens,
                   size_t copies, WorkMeter& meter, ClientCharge& memory) {
  if (auto* text = std::get_if<std::string>(&prompt)) {
    addCharge(memory, text->size() * copies);
    return std::move(*text);
  }
  std::string echo;
  decodePieces(model, tokens, false, meter, [&](const std::string& piece) {
    addCharge(memory, piece.size() * copies);
    echo += piece;
  });
  return echo;
}

}  // namespace

void handleCompletion(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter) {
  ClientCharge memory(request.client);
  CompletionRequest parsed = parseCompletionRequest(request.body, meter, memory, context.max_choices);
  const auto model = chooseModel({context.models, request.key}, parsed.options.model, parsed.options.adapters);
  freeText(request.body);  // not before: after TextPending the body is parsed again
  request.memory.release();

  Generation::Job job{.model = model,
                      .default_max_tokens = kDefaultMaxTokens,
                      .prompt_field = "prompt",
                      .client = request.client,
                      .received = request.received,
                      .usage = std::move(request.usage),
                      .queue_timeout = queueTimeoutOf(context, request),
                      .share = fairShareOf(context.fair_by, request, *model),
                      .continues_prompt = true};
  std::vector<std::string> echoes;
  ClientCharge of_answer(request.client);
  // A whole answer has the echo in each of its choices, and the writer keeps it for them.
  const size_t echo_copies = 1 + (parsed.options.stream ? 0 : static_cast<size_t>(parsed.options.choices));
  for (auto& prompt : parsed.prompts) {
    job.prompts.push_back(tokensOf(context, *model, prompt, parsed.add_special_tokens, meter));
    if (!parsed.echo) continue;
    echoes.push_back(echoOf(*model, prompt, job.prompts.back(), echo_copies, meter, of_answer));
  }
  const size_t choices = job.prompts.size() * static_cast<size_t>(parsed.options.generated);
  auto writer = std::make_shared<CompletionWriter>(
      AnswerSetup{exchange, model, parsed.options.ofAnswer(), choices, std::move(of_answer)}, std::move(echoes));
  job.options = std::move(parsed.options);
  startGeneration(context, std::move(job), exchange, std::move(writer), meter);
}

}  // namespace chorus::server
