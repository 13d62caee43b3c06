// Limits on requests per minute, tokens per minute and concurrent requests, for each client and for each adapter. A
// client is an API key, or without keys what client_address.h says. Pure: the time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/access/api_keys.h"
#include "server/access/limit_counters.h"
#include "server/access/limit_settings.h"
#include "server/access/token_bucket.h"
#include "server/http/http.h"

namespace chorus::server {

class UsageLimits;
struct LimitRefusal;  // server/access/limit_answers.h

// Counts the use of one request for its client and its adapters. Thread-safe.
class Usage {
 public:
  using Time = TokenBucket::Time;

  Usage(const Usage&) = delete;
  Usage& operator=(const Usage&) = delete;
  ~Usage() { end(); }

  // Counts the request for its adapters, and its prompt for its client and its adapters. Returns the headers
  // of limitHeaders(), each with the numbers of the limit that has least left. Throws ApiError (429) if a limit is
  // exceeded; the request then counts for nothing. adapters: names; empty for the base model.
  HttpHeaders begin(const std::vector<std::string>& adapters, int64_t prompt_tokens, Time now);
  // Counts generated tokens, which may exceed what is left.
  void generated(int64_t tokens, Time now) { charge(tokens, now); }
  // Counts the prompt no longer: the engine has refused it. Call it at most once, with the tokens that begin() counted.
  void giveBackPrompt(int64_t prompt_tokens, Time now) { charge(-prompt_tokens, now); }
  // Whether the number of tokens is limited. Valid after begin().
  bool limitsTokens() const { return limits_tokens_; }
  // The request runs no longer. Idempotent.
  void end() noexcept;

 private:
  friend class UsageLimits;
  struct Share;
  Usage(std::shared_ptr<UsageLimits> limits, std::shared_ptr<const ApiKeys> keys, bool anthropic);
  void charge(int64_t tokens, Time now);

  const std::shared_ptr<UsageLimits> limits_;
  const std::shared_ptr<const ApiKeys> keys_;
  const bool anthropic_;                        // the request is of Anthropic's API
  std::vector<std::shared_ptr<Share>> shares_;  // guarded by the mutex of limits_. Before begin(): the client's, if any
  bool limits_tokens_ = false;
};

// Thread-safe. Must be owned by a shared_ptr.
class UsageLimits : public std::enable_shared_from_this<UsageLimits> {
 public:
  using Time = TokenBucket::Time;
  struct Options {
    LimitSettings client;   // defaults for each client
    LimitSettings adapter;  // defaults for each adapter
    // Clients and adapters whose use is remembered, each kind. Beyond it those are forgotten that have used nothing in
    // the last minute, and at least a sixteenth: those that would be without use soonest.
    size_t max_remembered = 65536;
    std::shared_ptr<LimitCounters> counters = std::make_shared<LimitCounters>();
    std::chrono::system_clock::time_point (*wall_clock)() = std::chrono::system_clock::now;  // for headers only
  };
  explicit UsageLimits(Options options);
  ~UsageLimits();

  // Counts a request of request.client. keys: those by which request.key was found, or null. Returns null if nothing
  // limits the request. Throws ApiError (429) if a limit is exceeded; the request then counts for nothing.
  std::unique_ptr<Usage> admit(const HttpRequest& request, std::shared_ptr<const ApiKeys> keys, Time now);

  // Clients and adapters that are remembered.
  size_t remembered() const;

 private:
  friend class Usage;
  using Share = Usage::Share;
  using Shares = std::unordered_map<std::string, std::shared_ptr<Share>>;

  std::shared_ptr<Share> find(Shares& shares, const std::string& name, const LimitSettings& own,
                              const LimitSettings& defaults, Time now) const;
  void makeRoom(Shares& shares, Time now) const;
  // Counts the refusal and throws its error.
  [[noreturn]] void refuse(const LimitRefusal& refusal, bool anthropic) const;

  const Options options_;
  mutable std::mutex mutex_;  // guards what follows, and every Share
  Shares clients_, adapters_;
};

}  // namespace chorus::server
