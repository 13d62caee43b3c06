#include "server/access/usage_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "server/access/limit_answers.h"
#include "server/errors.h"

namespace chorus::server {

// Limits and use of one client or adapter.
struct Usage::Share {
  // The client or adapter itself, for the messages of refusals.
  struct Origin {
    LimitSubject subject = LimitSubject::kClient;
    std::string text;  // see LimitRefusal::subject_text
  };
  struct Limit {
    int64_t most = 0;     // 0: no limit
    bool is_own = false;  // set in the file of keys, not by a flag
  };

  Origin origin;
  Limit requests_limit, tokens_limit, concurrent_limit;
  std::optional<TokenBucket> requests, tokens;
  int64_t concurrent = 0;

  void apply(const LimitSettings& own, const LimitSettings& defaults, Time now) {
    const auto chosen = [](const std::optional<int64_t>& first, const std::optional<int64_t>& second) {
      return Limit{first.value_or(second.value_or(0)), first.has_value()};
    };
    requests_limit = chosen(own.requests_per_minute, defaults.requests_per_minute);
    tokens_limit = chosen(own.tokens_per_minute, defaults.tokens_per_minute);
    concurrent_limit = chosen(own.concurrent_requests, defaults.concurrent_requests);
    applyTo(requests, requests_limit.most, now);
    applyTo(tokens, tokens_limit.most, now);
  }

  bool limited() const { return requests || tokens || concurrent_limit.most > 0; }

  std::chrono::microseconds untilUnused(Time now) {
    std::chrono::microseconds longest{0};
    for (auto* bucket : {&requests, &tokens}) {
      if (*bucket) longest = std::max(longest, (*bucket)->untilFull(now));
    }
    return longest;
  }

  // The refusal of one more request, if it exceeds a limit.
  std::optional<LimitRefusal> refuseRequest(Time now) {
    if (concurrent_limit.most > 0 && concurrent >= concurrent_limit.most) {
      return LimitRefusal{.subject = origin.subject,
                          .subject_text = origin.text,
                          .kind = LimitKind::kConcurrentRequests,
                          .setting = settingOf(LimitKind::kConcurrentRequests, concurrent_limit),
                          .limit = concurrent_limit.most,
                          .left = concurrent_limit.most - concurrent,
                          .wait = {}};
    }
    if (requests && requests->left(now) < 1) {
      return LimitRefusal{.subject = origin.subject,
                          .subject_text = origin.text,
                          .kind = LimitKind::kRequests,
                          .setting = settingOf(LimitKind::kRequests, requests_limit),
                          .limit = requests_limit.most,
                          .left = requests->left(now),
                          .wait = requests->until(1, now),
                          .until_full = requests->untilFull(now)};
    }
    return std::nullopt;
  }

  std::optional<LimitRefusal> refuseTokens(int64_t count, Time now) {
    if (!tokens || tokens->left(now) >= count) return std::nullopt;
    LimitRefusal refusal{.subject = origin.subject,
                         .subject_text = origin.text,
                         .kind = LimitKind::kTokens,
                         .setting = settingOf(LimitKind::kTokens, tokens_limit),
                         .limit = tokens_limit.most,
                         .left = tokens->left(now),
                         .requested = count,
                         .wait = {},
                         .until_full = tokens->untilFull(now)};
    if (count <= tokens_limit.most) refusal.wait = tokens->until(count, now);
    return refusal;
  }

  void takeRequest(Time now) {
    ++concurrent;
    if (requests) requests->charge(1, now);
  }

 private:
  static void applyTo(std::optional<TokenBucket>& bucket, int64_t most, Time now) {
    if (most == 0) {
      bucket.reset();
    } else if (!bucket) {
      bucket.emplace(most, now);
    } else if (bucket->perMinute() != most) {
      bucket->setPerMinute(most, now);
    }
  }

  std::string settingOf(LimitKind kind, const Limit& limit) const {
    const std::string_view name = settingName(kind);
    const bool is_adapter = origin.subject == LimitSubject::kAdapter;
    if (!limit.is_own) return fmt::format("--{}limit_{}", is_adapter ? "adapter_" : "", name);
    return fmt::format("'{}' of {} in --api_keys_file", name, is_adapter ? "the adapter" : "the key");
  }
};

namespace {

// Keeps the refusal after which the client should wait longest.
void keepLonger(std::optional<LimitRefusal>& kept, std::optional<LimitRefusal> other) {
  if (!other) return;
  if (!kept || rankOf(*other) > rankOf(*kept)) kept = std::move(other);
}

LimitForm formFor(bool anthropic, const UsageLimits::Options& options) {
  return {.anthropic_now = anthropic ? std::optional(options.wall_clock()) : std::nullopt};
}

}  // namespace

Usage::Usage(std::shared_ptr<UsageLimits> limits, std::shared_ptr<const ApiKeys> keys, bool anthropic)
    : limits_(std::move(limits)), keys_(std::move(keys)), anthropic_(anthropic) {}

HttpHeaders Usage::begin(const std::vector<std::string>& adapters, int64_t prompt_tokens, Time now) {
  const std::lock_guard lock(limits_->mutex_);
  std::vector<std::shared_ptr<Share>> added;
  for (const std::string& name : adapters) {
    const LimitSettings own = keys_ != nullptr ? keys_->limitsOfAdapter(name) : LimitSettings();
    auto share = limits_->find(limits_->adapters_, name, own, limits_->options_.adapter, now);
    if (share == nullptr) continue;
    share->origin = {LimitSubject::kAdapter, fmt::format("the adapter `{}`", name)};
    added.push_back(std::move(share));
  }
  std::optional<LimitRefusal> refusal;
  for (const auto& share : shares_) keepLonger(refusal, share->refuseTokens(prompt_tokens, now));
  for (const auto& share : added) {
    keepLonger(refusal, share->refuseRequest(now));
    keepLonger(refusal, share->refuseTokens(prompt_tokens, now));
  }
  if (refusal) {
    for (const auto& share : shares_) {
      if (share->requests) share->requests->charge(-1, now);
    }
    limits_->refuse(*refusal, anthropic_);
  }
  shares_.insert(shares_.end(), added.begin(), added.end());
  for (const auto& share : added) share->takeRequest(now);
  LimitState requests, tokens;
  for (const auto& share : shares_) {
    if (share->tokens) {
      share->tokens->charge(prompt_tokens, now);
      limits_tokens_ = true;
      tokens.keepTighter(*share->tokens, now);
    }
    if (share->requests) requests.keepTighter(*share->requests, now);
  }
  return limitHeaders(requests, tokens, formFor(anthropic_, limits_->options_));
}

void Usage::charge(int64_t tokens, Time now) {
  if (!limits_tokens_) return;
  const std::lock_guard lock(limits_->mutex_);
  for (const auto& share : shares_) {
    if (share->tokens) share->tokens->charge(tokens, now);
  }
}

void Usage::end() noexcept {
  const std::lock_guard lock(limits_->mutex_);
  for (const auto& share : shares_) --share->concurrent;
  shares_.clear();
}

UsageLimits::UsageLimits(Options options) : options_(options) {}
UsageLimits::~UsageLimits() = default;

std::unique_ptr<Usage> UsageLimits::admit(const HttpRequest& request, std::shared_ptr<const ApiKeys> keys, Time now) {
  const bool limits_adapters = options_.adapter.any() || (keys != nullptr && keys->limitAdapters());
  const std::string name = request.client != nullptr ? request.client->name() : std::string();
  const LimitSettings own = request.key != nullptr ? request.key->limits : LimitSettings();
  // Destroyed without the lock, which its destructor takes.
  const bool anthropic = errorFormFor(request.path, "").api == ErrorForm::Api::kAnthropic;
  std::unique_ptr<Usage> usage(new Usage(shared_from_this(), std::move(keys), anthropic));
  const std::lock_guard lock(mutex_);
  auto share = find(clients_, name, own, options_.client, now);
  if (share == nullptr) return limits_adapters ? std::move(usage) : nullptr;
  share->origin = {LimitSubject::kClient, request.key != nullptr ? "this API key" : "this client"};
  if (const auto refusal = share->refuseRequest(now)) refuse(*refusal, anthropic);
  usage->shares_.push_back(share);
  share->takeRequest(now);
  return usage;
}

void UsageLimits::refuse(const LimitRefusal& refusal, bool anthropic) const {
  options_.counters->count(refusal.subject, refusal.kind);
  throw limitError(refusal, formFor(anthropic, options_));
}

// Returns null if nothing is limited.
std::shared_ptr<Usage::Share> UsageLimits::find(Shares& shares, const std::string& name, const LimitSettings& own,
                                                const LimitSettings& defaults, Time now) const {
  if (!own.any() && !defaults.any()) return nullptr;
  const auto known = shares.find(name);
  std::shared_ptr<Share> share = known != shares.end() ? known->second : std::make_shared<Share>();
  share->apply(own, defaults, now);
  if (!share->limited()) return nullptr;
  if (known != shares.end()) return share;
  if (shares.size() >= options_.max_remembered) makeRoom(shares, now);
  shares.emplace(name, share);
  return share;
}

// Removes every share that is unused, and at least a sixteenth of those without a request, so that the cost of the
// search is divided among many later calls.
void UsageLimits::makeRoom(Shares& shares, Time now) const {
  struct Idle {
    std::chrono::microseconds until_unused;
    Shares::iterator place;
  };
  std::vector<Idle> idle;
  for (auto at = shares.begin(); at != shares.end(); ++at) {
    if (at->second.use_count() == 1) idle.push_back({at->second->untilUnused(now), at});
  }
  if (idle.empty()) throw ApiError::unavailable("The server has too many clients; try again later.");
  auto end = std::partition(idle.begin(), idle.end(), [](const Idle& one) { return one.until_unused.count() == 0; });
  const auto least = std::next(idle.begin(), static_cast<ptrdiff_t>((idle.size() + 15) / 16));
  if (end < least) {
    std::nth_element(end, std::prev(least), idle.end(),
                     [](const Idle& a, const Idle& b) { return a.until_unused < b.until_unused; });
    end = least;
  }
  for (auto at = idle.begin(); at != end; ++at) shares.erase(at->place);
}

size_t UsageLimits::remembered() const {
  const std::lock_guard lock(mutex_);
  return clients_.size() + adapters_.size();
}

}  // namespace chorus::server
