#include "server/openai/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "server/access/usage_limits.h"
#include "server/metrics/request_record.h"
#include "server/openai/executor_error.h"
#include "server/openai/option_fields.h"
#include "server/openai/prompt_tokens.h"

namespace chorus::server {

using executor::FinishReason;

namespace {

// Estimates the memory in bytes of a response in the inbox.
size_t bytesOf(const executor::Response& response) {
  size_t bytes = 512;
  if (response.hasError()) return bytes;
  const executor::Result& result = response.getResult();
  for (const auto& tokens : result.outputTokenIds) bytes += tokens.size() * sizeof(int32_t);
  // All tokens have equally many likeliest ones.
  const auto add_likeliest = [&bytes](const auto& of_tokens) {
    if (of_tokens.empty()) return;
    const auto& likeliest = of_tokens.front();
    bytes += of_tokens.size() * (sizeof(likeliest) + likeliest.size() * sizeof(likeliest.front()));
  };
  if (result.logProbs) {
    for (const auto& values : *result.logProbs) bytes += values.size() * sizeof(float);
  }
  if (result.topLogProbs) {
    for (const auto& of_tokens : *result.topLogProbs) add_likeliest(of_tokens);
  }
  if (result.promptLogProbs) bytes += result.promptLogProbs->size() * sizeof(float);
  if (result.promptTopLogProbs) add_likeliest(*result.promptTopLogProbs);
  return bytes;
}

}  // namespace

Generation::Generation(const ApiContext& context, Job job, WorkMeter& meter)
    : context_(context),
      job_(std::move(job)),
      rules_(tokenRulesOf(job_.options.sampling, context_, *job_.model->text, meter)),
      stops_(std::make_shared<const StopStrings>(std::move(job_.options.stop))),
      kept_(job_.client),
      inbox_charge_(job_.client) {
  const auto add = [this](int32_t id) {
    if (std::find(end_ids_.begin(), end_ids_.end(), id) == end_ids_.end()) end_ids_.push_back(id);
  };
  if (!job_.options.ignore_eos) {
    end_ids_ = context_.defaults.end_ids;
    // An adapter's own tokenizer may have another end token.
    if (const auto eos = job_.model->text->eosTokenId()) add(*eos);
  }
  checkTokenIds("stop_token_ids", job_.options.stop_token_ids, context_.engine.vocabSize());
  for (const int32_t id : job_.options.stop_token_ids) add(id);
  // Their tables are kept instead.
  job_.options.sampling.bad_words = {};
  job_.options.sampling.logit_bias = {};
}

int32_t Generation::maxTokensFor(const executor::VecTokens& prompt) const {
  const int64_t length = static_cast<int64_t>(prompt.size());
  const int64_t context_length = context_.engine.maxSeqLen();
  const int64_t room = context_length - length;
  if (length > context_.engine.maxInputLen() || room < 1) throw promptTooLong(context_, length, job_.prompt_field);
  if (const auto asked = job_.options.max_tokens) {
    if (*asked <= room) return std::max(*asked, 1);
    throw ApiError::invalid(
        fmt::format("'{}' is too large: {}. This model's maximum context length is {} tokens and your request has {} "
                    "input tokens ({} > {} - {}).",
                    job_.options.max_tokens_field, *asked, context_length, length, *asked, context_length, length),
        job_.options.max_tokens_field, "context_length_exceeded");
  }
  // The default is lowered to the room that is left: the client did not ask for it, so it is no error.
  return static_cast<int32_t>(job_.default_max_tokens > 0 ? std::min<int64_t>(job_.default_max_tokens, room) : room);
}

// Returns the rest of a timeout that starts when the request is received; not positive if it has passed.
std::chrono::milliseconds Generation::timeLeft(std::chrono::milliseconds timeout) const {
  if (job_.received == std::chrono::steady_clock::time_point()) return timeout;
  return timeout -
         std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - job_.received);
}

// Throws ApiError (400) if the prompt and the lengths that the client asks for do not fit.
void Generation::checkLengths(const executor::VecTokens& prompt) const {
  const int32_t max_tokens = maxTokensFor(prompt);
  const int32_t longest = onlyScores() ? 0 : max_tokens;
  const std::optional<int32_t> min_tokens = job_.options.sampling.min_tokens;
  if (min_tokens.value_or(0) <= longest) return;
  throw ApiError::invalid(fmt::format("Invalid value for 'min_tokens': {} is more than the {} tokens that the answer "
                                      "may have.",
                                      *min_tokens, longest),
                          "min_tokens", "invalid_value");
}

executor::Request Generation::makeRequest(const executor::VecTokens& prompt, int32_t index) const {
  const GenerationOptions& options = job_.options;
  executor::OutputConfig output;
  output.excludeInputFromOutput = true;
  output.returnLogProbs = options.log_probs || options.generated > options.choices;
  output.returnPromptLogProbs = options.prompt_log_probs;
  output.topLogProbs = options.top_log_probs;
  output.returnPerfMetrics = job_.record != nullptr;
  // Stop strings are matched in the text, so the executor must stream such a request even if the client does not. Log
  // probabilities are streamed too, because they are charged to the client here, but not in the executor.
  // Generated tokens count against limits when they arrive.
  const bool limited = job_.usage != nullptr && job_.usage->limitsTokens();
  const bool streaming = options.stream || !stops_->longestFirst().empty() || options.log_probs || limited;
  executor::Request request(prompt, maxTokensFor(prompt), streaming,
                            samplingConfigOf(options.sampling, context_.defaults, prompt.size(), index), output);
  request.setBadWordTables(rules_.bad_words);
  request.setTokenBias(rules_.bias);
  if (!end_ids_.empty()) {
    request.setEndId(end_ids_.front());
    request.setExtraEndIds({end_ids_.begin() + 1, end_ids_.end()});
  }
  if (job_.model->adapter_id) request.setLoraConfig(executor::LoraConfig(*job_.model->adapter_id));
  if (!job_.model->composition.empty()) request.setLoraComposition(job_.model->composition);
  if (job_.client) request.setClientId(job_.client->id());
  if (context_.request_timeout) {
    request.setAllottedTimeMs(std::max(timeLeft(*context_.request_timeout), std::chrono::milliseconds(1)));
  }
  request.setFairShare(job_.share);
  if (options.sampling.cache_salt) request.setCacheSaltID(context_.cache_salts.idOf(*options.sampling.cache_salt));
  return request;
}

HttpHeaders Generation::countUsage() {
  if (job_.usage == nullptr) return {};
  const ServedModel& model = *job_.model;
  std::vector<std::string> adapters = model.composed_of;
  if (model.adapter_id) adapters.push_back(model.name);
  int64_t tokens = 0;
  for (const auto& prompt : job_.prompts) tokens += static_cast<int64_t>(prompt.size());
  return job_.usage->begin(adapters, tokens, std::chrono::steady_clock::now());
}

// Called before the client can see the end of its answer: it may send its next request at once.
void Generation::endUsage() const {
  if (job_.usage != nullptr) job_.usage->end();
}

// The request's body is freed before its answer begins. What is kept of it, here and in the engine's queue, is charged
// until then.
void Generation::chargeKept() {
  constexpr size_t kSequenceBytes = 1024;  // a sequence in the queue, without its tokens and its text
  const auto n = static_cast<size_t>(job_.options.generated);
  const auto& stops = stops_->longestFirst();
  const size_t held_back = stops.empty() ? 0 : stops.front().text.size();
  size_t bytes = stops_->bytes();
  for (const auto& prompt : job_.prompts) {
    bytes += n * (kSequenceBytes + held_back) + (1 + n) * prompt.size() * sizeof(executor::TokenIdType);
  }
  if (rules_.bad_words != nullptr) bytes += rules_.bad_words->bytes();
  if (rules_.bias != nullptr) bytes += rules_.bias->size() * sizeof(executor::TokenBias);
  addCharge(kept_, bytes);
}

std::vector<executor::Request> Generation::makeRequests(std::optional<std::chrono::milliseconds> queue_time,
                                                        WorkMeter& meter) const {
  const auto n = static_cast<size_t>(job_.options.generated);
  const size_t work_of_choice = rules_.bias == nullptr ? 0 : rules_.bias->size();
  std::vector<executor::Request> requests;
  requests.reserve(choices_.size());
  for (size_t c = 0; c < choices_.size(); ++c) {
    meter.charge(WorkMeter::kObject + work_of_choice + promptOf(c).size() * sizeof(executor::TokenIdType));
    requests.push_back(makeRequest(promptOf(c), static_cast<int32_t>(c % n)));
  }
  // The choices of a client begin in their order, so the request has begun when the first of them has.
  if (queue_time) requests.front().setQueueTimeMs(queue_time);
  return requests;
}

void Generation::enqueue(WorkMeter& meter) {
  const auto n = static_cast<size_t>(job_.options.generated);
  for (const auto& prompt : job_.prompts) usage_.prompt_tokens += static_cast<int64_t>(prompt.size());
  bool taken = false;
  const auto giveUp = [&] {
    if (!taken && job_.usage) job_.usage->giveBackPrompt(usage_.prompt_tokens, std::chrono::steady_clock::now());
    cancel();
  };
  try {
    chargeKept();
    for (const auto& prompt : job_.prompts) checkLengths(prompt);
    std::optional<std::chrono::milliseconds> queue_time;
    if (job_.queue_timeout) {
      queue_time = timeLeft(*job_.queue_timeout);
      if (queue_time->count() <= 0) throw ApiError::queueTimedOut(*job_.queue_timeout);
    }
    choices_.resize(job_.prompts.size() * n);
    unfinished_ = choices_.size();
    cached_tokens_.resize(job_.prompts.size());
    // The requests have copies of the prompts until the engine has made its own.
    ClientCharge copies(job_.client);
    addCharge(copies, n * static_cast<size_t>(usage_.prompt_tokens) * sizeof(executor::TokenIdType));
    std::vector<executor::IdType> ids =
        context_.engine.enqueue(makeRequests(queue_time, meter),
                                [self = shared_from_this()](const executor::Response& r) { self->onResponse(r); });
    taken = true;
    for (size_t c = 0; c < choices_.size(); ++c) choices_[c].id = ids[c];
    {
      const std::lock_guard lock(mutex_);
      ids_ = std::move(ids);
    }
    makeTexts();
  } catch (const Error& e) {
    giveUp();
    // The executor throws this code after its shutdown.
    if (e.code() == ErrorCode::kUnsupported) throw ApiError::unavailable("The server is shutting down.");
    throw currentApiError();
  } catch (...) {
    giveUp();
    throw currentApiError();
  }
}

// Not before the engine has taken the choices: many requests are refused because its queue is full.
void Generation::makeTexts() {
  TextStreamOptions text_options{.stops = stops_,
                                 .include_stop = job_.options.include_stop,
                                 .skip_special_tokens = job_.options.skip_special_tokens,
                                 .stops_from = job_.options.sampling.min_tokens.value_or(0)};
  for (size_t c = 0; c < choices_.size(); ++c) {
    if (job_.continues_prompt) text_options.before = promptOf(c);
    choices_[c].text = job_.model->text->newStream(text_options);
  }
}

void Generation::deliver(std::shared_ptr<GenerationListener> listener) {
  listener_ = std::move(listener);
  schedule();
}

void Generation::recordAccepted() const {
  if (!job_.record) return;
  std::vector<int32_t> prompts;
  for (const auto& prompt : job_.prompts) {
    prompts.insert(prompts.end(), static_cast<size_t>(job_.options.generated), static_cast<int32_t>(prompt.size()));
  }
  job_.record->accepted(*job_.model, context_.models, std::move(prompts), usage_.prompt_tokens,
                        job_.options.max_tokens.value_or(0));
}

void Generation::schedule() {
  constexpr size_t kBatchBytes = 1;  // every turn counts the same in the FairQueue
  context_.delivery.post(job_.client ? job_.client->id() : 0, kBatchBytes,
                         [self = shared_from_this()] { self->process(); });
}

void Generation::cancel() {
  std::vector<executor::IdType> ids;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    ids = ids_;
    inbox_.clear();
    inbox_charge_.release();
  }
  for (const auto id : ids) context_.engine.cancel(id);
  endUsage();
}

// Runs on the executor's thread and only queues the response. If it throws for lack of memory, the executor passes the
// same response again later.
void Generation::onResponse(const executor::Response& response) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return;
  const size_t bytes = bytesOf(response);
  if (inbox_answer_ == MemoryAnswer::kGranted) inbox_answer_ = inbox_charge_.add(bytes);
  if (inbox_answer_ == MemoryAnswer::kGranted) inbox_.push_back({response, bytes});
  if (scheduled_) return;
  try {
    schedule();
    scheduled_ = true;
  } catch (...) {
    if (inbox_answer_ == MemoryAnswer::kGranted) inbox_.pop_back();
    throw;
  }
}

// The caller holds mutex_.
size_t Generation::choiceOf(executor::IdType id) const {
  return static_cast<size_t>(std::ranges::lower_bound(ids_, id) - ids_.begin());
}

// The number of the prompt's tokens whose log probabilities have come with the arrival and are not yet reported.
size_t Generation::unscored(const Arrival& arrival) const {
  if (!arrival.response.getResult().promptLogProbs) return 0;
  return promptOf(arrival.choice).size() - arrival.scored;
}

// Takes arrivals for a short time in one turn, so that generations take turns on the delivery threads.
void Generation::process() {
  constexpr auto kTurn = std::chrono::milliseconds(2);
  const auto turn_end = std::chrono::steady_clock::now() + kTurn;
  try {
    for (;;) {
      {
        std::lock_guard lock(mutex_);
        if (cancelled_) {
          listener_ = nullptr;
          return;
        }
        const bool ready = written_ == Written::kAll;
        if (ready && !arrival_ && !inbox_.empty()) {
          arrival_ = std::move(inbox_.front());
          inbox_.pop_front();
          arrival_->choice = choiceOf(arrival_->response.getRequestId());
        }
        if (ready && !arrival_) {
          if (inbox_answer_ != MemoryAnswer::kGranted) throw ApiError::outOfMemory(inbox_answer_);
          scheduled_ = false;
          return;
        }
      }
      Progress progress = Progress::kTurnEnded;
      if (written_ == Written::kPart) {
        took(listener_->writeMore());
      } else {
        progress = handle(*arrival_, turn_end);
      }
      if (progress == Progress::kFailed || isOver()) {
        listener_ = nullptr;
        return;
      }
      if (progress == Progress::kHandled) {
        const size_t bytes = arrival_->bytes;
        arrival_.reset();
        std::lock_guard lock(mutex_);
        inbox_charge_.resize(inbox_charge_.bytes() - std::min(bytes, inbox_charge_.bytes()));
      }
      if (std::chrono::steady_clock::now() >= turn_end) return schedule();
    }
  } catch (...) {
    failWith(currentApiError());
  }
}

// Makes text of the arrival's tokens until the turn ends, after one piece of its prompt's log probabilities.
Generation::Progress Generation::handle(Arrival& arrival, std::chrono::steady_clock::time_point turn_end) {
  Choice& choice = choices_[arrival.choice];
  if (choice.finished) return Progress::kHandled;
  if (arrival.response.hasError()) {
    failWith(fromExecutor(arrival.response, *job_.model));
    return Progress::kFailed;
  }
  const executor::Result& result = arrival.response.getResult();
  const FinishReason reason = result.finishReasons.empty() ? FinishReason::kNOT_FINISHED : result.finishReasons.front();
  if (reason == FinishReason::kTIMED_OUT || reason == FinishReason::kCANCELLED) {
    failWith(missedQueueTime(arrival)             ? ApiError::queueTimedOut(*job_.queue_timeout)
             : reason == FinishReason::kTIMED_OUT ? ApiError::timedOut()
                                                  : ApiError::unavailable("The server stopped before the answer was "
                                                                          "complete; send the request again."));
    return Progress::kFailed;
  }
  GenerationDelta delta;
  delta.choice = static_cast<int32_t>(arrival.choice);
  delta.adapter_content_hash = result.adapterContentHash;
  static const executor::VecTokens kNone;
  const bool none = result.outputTokenIds.empty() || onlyScores();
  const executor::VecTokens& tokens = none ? kNone : result.outputTokenIds.front();
  const bool last = result.isFinal || reason != FinishReason::kNOT_FINISHED;
  if (arrival.handled == 0 && arrival.scored == 0) {
    checkContent(result);
    countCached(arrival.choice, result);
    if (job_.record) job_.record->arrived(arrival.choice, tokens.size(), result);
    if (job_.usage) job_.usage->generated(static_cast<int64_t>(tokens.size()), std::chrono::steady_clock::now());
  }
  addPromptLogProbs(arrival, delta);
  if (unscored(arrival) > 0) {
    delta.usage = usage_;
    took(listener_->onDelta(std::move(delta)));
    // An adapter's tokenizer may take long for a token.
    constexpr size_t kMost = 64;
    const bool late = std::chrono::steady_clock::now() > turn_end;
    prompt_piece_ = late ? std::max<size_t>(prompt_piece_ / 2, 1) : std::min(2 * prompt_piece_, kMost);
    return Progress::kTurnEnded;
  }
  bool in_time = true;
  for (size_t& i = arrival.handled; i < tokens.size() && in_time; ++i) {
    ++usage_.completion_tokens;
    ++choice.tokens;
    if (result.logProbs) choice.log_prob_sum += static_cast<double>(result.logProbs->front()[i]);
    if (job_.options.log_probs) {
      delta.log_probs.push_back({tokens[i], result.logProbs->front()[i], {}});
      if (result.topLogProbs) delta.log_probs.back().likeliest = result.topLogProbs->front()[i];
    }
    const bool end_token = last && reason == FinishReason::kEND_ID && i + 1 == tokens.size();
    if (end_token && !job_.options.include_stop) break;
    auto piece = choice.text->push(tokens[i]);
    delta.text += piece.text;
    if (piece.stopped_by) {
      context_.engine.cancel(choice.id);
      finishChoice(choice, "stop", *piece.stopped_by, std::move(delta));
      return Progress::kHandled;
    }
    in_time = std::chrono::steady_clock::now() < turn_end;
  }
  const bool whole = in_time || arrival.handled == tokens.size();
  if (!last || !whole) {
    const bool silent = delta.text.empty() && delta.log_probs.empty() && delta.prompt_log_probs.empty();
    delta.usage = usage_;
    if (!silent) took(listener_->onDelta(std::move(delta)));
    return whole ? Progress::kHandled : Progress::kTurnEnded;
  }
  auto rest = choice.text->finish();
  delta.text += rest.text;
  OrderedJson stop_reason;
  if (rest.stopped_by) {
    stop_reason = *rest.stopped_by;
  } else if (reason == FinishReason::kEND_ID && !tokens.empty()) {
    const auto& own = job_.options.stop_token_ids;
    if (std::find(own.begin(), own.end(), tokens.back()) != own.end()) stop_reason = tokens.back();
  }
  const bool stopped =
      !onlyScores() && (rest.stopped_by || reason == FinishReason::kEND_ID || reason == FinishReason::kSTOP_WORDS);
  finishChoice(choice, stopped ? "stop" : "length", std::move(stop_reason), std::move(delta));
  return Progress::kHandled;
}

// Whether the first choice ended without a token because its time in the queue has passed, and not the request's.
bool Generation::missedQueueTime(const Arrival& arrival) const {
  if (!job_.queue_timeout || arrival.choice != 0 || choices_[0].tokens > 0) return false;
  const executor::Result& result = arrival.response.getResult();
  if (result.finishReasons.empty() || result.finishReasons.front() != FinishReason::kTIMED_OUT) return false;
  // The executor's deadline may be a millisecond earlier, because it is rounded.
  return !context_.request_timeout || timeLeft(*context_.request_timeout) > std::chrono::milliseconds(1);
}

// Throws ApiError (409) if choices ran with different content. Each choice is a request of its own: between two of them
// the adapter may be evicted, replaced and loaded again.
void Generation::checkContent(const executor::Result& result) {
  if (result.adapterContentHash.empty() || result.adapterContentHash == adapter_content_hash_) return;
  if (!adapter_content_hash_.empty()) {
    throw ApiError::conflict(
        fmt::format("`{}` was replaced while its choices were generated; send the request again.", job_.model->name));
  }
  adapter_content_hash_ = result.adapterContentHash;
}

// A prompt's choices find what the first of them has computed. The smallest number is what was cached before.
void Generation::countCached(size_t choice, const executor::Result& result) {
  auto& known = cached_tokens_[choice / static_cast<size_t>(job_.options.generated)];
  if (known && *known <= result.cachedTokens) return;
  usage_.cached_tokens += result.cachedTokens - known.value_or(0);
  known = result.cachedTokens;
}

// Adds the log probabilities of the prompt's next tokens.
void Generation::addPromptLogProbs(Arrival& arrival, GenerationDelta& delta) const {
  const executor::Result& result = arrival.response.getResult();
  const executor::VecTokens& prompt = promptOf(arrival.choice);
  for (size_t left = std::min(unscored(arrival), prompt_piece_); left > 0; --left) {
    const size_t i = arrival.scored++;
    TokenLogProb& token = delta.prompt_log_probs.emplace_back(TokenLogProb{prompt[i], std::nullopt, {}});
    if (i == 0) continue;
    token.log_prob = (*result.promptLogProbs)[i - 1];
    if (result.promptTopLogProbs) token.likeliest = (*result.promptTopLogProbs)[i - 1];
  }
}

void Generation::finishChoice(Choice& choice, const std::string& reason, OrderedJson stop_reason,
                              GenerationDelta delta) {
  choice.finished = true;
  --unfinished_;
  if (job_.record)
    job_.record->finished(static_cast<size_t>(delta.choice), reason == "stop" ? Outcome::kStop : Outcome::kLength);
  delta.finish_reason = reason;
  delta.mean_log_prob = choice.log_prob_sum / static_cast<double>(std::max<int64_t>(choice.tokens, 1));
  delta.stop_reason = std::move(stop_reason);
  delta.usage = usage_;
  if (unfinished_ == 0) endUsage();
  took(listener_->onDelta(std::move(delta)));
}

void Generation::took(Written written) {
  written_ = written;
  if (written == Written::kCancelled) cancel();
}

// Whether no call of the listener follows. Reports the end of the answer once all of its deltas are written.
bool Generation::isOver() {
  if (written_ == Written::kAll && unfinished_ == 0 && !std::exchange(done_reported_, true)) {
    took(listener_->onDone(usage_));
  }
  return written_ == Written::kCancelled || (written_ == Written::kAll && done_reported_);
}

void Generation::failWith(const ApiError& error) {
  if (job_.record) job_.record->finishedAll(Outcome::kError);
  cancel();
  if (const auto listener = std::move(listener_)) listener->onError(error);
}

}  // namespace chorus::server
