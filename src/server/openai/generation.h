// Runs one HTTP request on the engine: all its choices, from token ids to pieces of text.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/errors.h"
#include "server/model/api_context.h"
#include "server/openai/openai_types.h"
#include "server/openai/token_rules.h"

namespace chorus::server {

struct TokenLogProb {
  int32_t token;
  std::optional<float> log_prob;                  // none for a prompt's first token
  std::vector<executor::TokenLogProb> likeliest;  // alternatives, the likeliest first
};

// Counts over all choices.
struct GenerationUsage {
  int64_t prompt_tokens = 0;  // each prompt counts once, however many choices it has
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // tokens of the prompts whose keys and values were in the prefix cache
};

struct GenerationDelta {
  int32_t choice = 0;  // prompt index * options.generated + index among that prompt's choices
  std::string text;
  std::vector<TokenLogProb> prompt_log_probs;  // of the prompt's next tokens, in a choice's first deltas; if asked for
  std::vector<TokenLogProb> log_probs;         // of the tokens that arrived; empty unless asked for
  std::optional<std::string> finish_reason;    // "stop" or "length" in a choice's last delta
  double mean_log_prob = 0;                    // mean over the choice's tokens, in its last delta; only for ranking
  OrderedJson stop_reason;                     // the stop string or stop token id that ended it, else null
  std::string adapter_content_hash;            // see executor::Result
  GenerationUsage usage;                       // so far
};

// How much a listener has written of the deltas and of the end that it was given.
enum class Written {
  kAll,
  kPart,       // the rest takes long: writeMore() is to be called
  kCancelled,  // nobody will read the rest: the caller cancels all choices
};

// Receives a generation's progress on worker threads, one call at a time. A call takes a few milliseconds at most, so
// that other generations have their turns. After kPart only writeMore() or onError() is called, until all is written.
// No call follows kCancelled, onError(), or onDone() once all is written.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual Written onDelta(GenerationDelta delta) = 0;
  virtual Written onDone(const GenerationUsage& usage) = 0;
  virtual Written writeMore() { return Written::kAll; }
  virtual void onError(const ApiError& error) = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Job {
    std::shared_ptr<const ServedModel> model;
    std::vector<executor::VecTokens> prompts;  // none empty, ids below the vocabulary's size
    GenerationOptions options;
    int32_t default_max_tokens = 0;                                         // 0: as many as fit
    std::string prompt_field;                                               // "prompt" or "messages", for errors
    std::shared_ptr<Client> client = nullptr;                               // null: nothing is charged
    std::chrono::steady_clock::time_point received{};                       // the request timeout counts from here
    std::shared_ptr<RequestRecord> record = nullptr;                        // null: nothing is recorded
    std::shared_ptr<Usage> usage = nullptr;                                 // null: nothing limits the request
    std::optional<std::chrono::milliseconds> queue_timeout = std::nullopt;  // counts from `received`
    std::optional<executor::FairShare> share = std::nullopt;
    bool continues_prompt = false;  // the answers' texts go on with the prompts', instead of beginning new ones
  };

  // Tokenizes the bad words of the options and charges the meter. Throws ApiError (status 400) for tokens that the
  // model does not have, and for bad words of too many tokens.
  Generation(const ApiContext& context, Job job, WorkMeter& meter);

  // Counts the request and its prompts against the limits on its client's and its adapters' use. Returns the headers
  // that say what is left; none without limits. Called once, before enqueue(). Throws ApiError (429).
  HttpHeaders countUsage();
  // Enqueues all choices at once and charges the meter for each. Their progress is kept until deliver(). Throws
  // ApiError (too long or too much work: 400, queue full: 429, shut down or queue timeout: 503); none is enqueued then.
  void enqueue(WorkMeter& meter);
  // Starts to report to the listener, with the progress that was kept.
  void deliver(std::shared_ptr<GenerationListener> listener);
  // Names the request's model and prompts in the job's record, if there is one. Called between enqueue() and deliver().
  void recordAccepted() const;
  // Any thread. Cancels all choices and stops reporting.
  void cancel();

 private:
  struct Choice {
    executor::IdType id = 0;
    std::unique_ptr<TextStream> text;
    double log_prob_sum = 0;  // sum over all tokens of the choice; if choices are to be ranked
    int64_t tokens = 0;
    bool finished = false;
  };
  struct Arrival {
    executor::Response response;
    size_t bytes;
    size_t choice = 0;   // set when process() takes it
    size_t scored = 0;   // tokens of the prompt whose log probabilities were reported
    size_t handled = 0;  // number of its tokens of which text was made
  };
  enum class Progress {
    kHandled,    // all of the arrival
    kTurnEnded,  // the rest of it is left for a later call
    kFailed,     // the generation has ended with an error
  };

  void chargeKept();
  const executor::VecTokens& promptOf(size_t choice) const {
    return job_.prompts[choice / static_cast<size_t>(job_.options.generated)];
  }
  void checkLengths(const executor::VecTokens& prompt) const;
  executor::Request makeRequest(const executor::VecTokens& prompt, int32_t index) const;
  // max_tokens is 0. The executor generates at least one token, which is dropped then.
  bool onlyScores() const { return job_.options.max_tokens == 0; }
  void endUsage() const;
  void makeTexts();
  int32_t maxTokensFor(const executor::VecTokens& prompt) const;
  std::chrono::milliseconds timeLeft(std::chrono::milliseconds timeout) const;
  bool missedQueueTime(const Arrival& arrival) const;
  std::vector<executor::Request> makeRequests(std::optional<std::chrono::milliseconds> queue_time,
                                              WorkMeter& meter) const;
  void onResponse(const executor::Response& response);
  size_t choiceOf(executor::IdType id) const;
  void schedule();
  void process();
  size_t unscored(const Arrival& arrival) const;
  Progress handle(Arrival& arrival, std::chrono::steady_clock::time_point turn_end);
  void checkContent(const executor::Result& result);
  void countCached(size_t choice, const executor::Result& result);
  void addPromptLogProbs(Arrival& arrival, GenerationDelta& delta) const;
  void finishChoice(Choice& choice, const std::string& reason, OrderedJson stop_reason, GenerationDelta delta);
  void took(Written written);
  bool isOver();
  void failWith(const ApiError& error);

  const ApiContext& context_;
  Job job_;
  executor::VecTokens end_ids_;
  TokenRules rules_;
  std::shared_ptr<const StopStrings> stops_;
  ClientCharge kept_;
  GenerationUsage usage_;
  std::vector<std::optional<int32_t>> cached_tokens_;  // of each prompt, once a choice of it has started

  // Used by enqueue() and then by process(), which never overlap.
  size_t prompt_piece_ = 8;  // tokens of a prompt whose log probabilities one call of handle() adds
  std::vector<Choice> choices_;
  std::string adapter_content_hash_;  // the same for all choices; empty until the first is known
  size_t unfinished_ = 0;
  std::optional<Arrival> arrival_;  // the one that process() handles
  std::shared_ptr<GenerationListener> listener_;
  Written written_ = Written::kAll;  // the listener's last answer
  bool done_reported_ = false;       // onDone() was called

  std::mutex mutex_;  // guards what follows
  std::deque<Arrival> inbox_;
  ClientCharge inbox_charge_;
  MemoryAnswer inbox_answer_ = MemoryAnswer::kGranted;  // otherwise an arrival was dropped for lack of memory
  std::vector<executor::IdType> ids_;                   // of the choices, ascending
  bool scheduled_ = true;                               // process() is running, posted, or held back until deliver()
  bool cancelled_ = false;
};

}  // namespace chorus::server
