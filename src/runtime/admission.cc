#include "runtime/admission.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/adapter_cache/tensor_source.h"
#include "runtime/return_sequences.h"

namespace chorus {

using executor::FinishReason;
using executor::IdType;

namespace {

std::exception_ptr shutdownError() {
  return std::make_exception_ptr(Error(ErrorCode::kUnsupported, "the executor was shut down"));
}

}  // namespace

Admission::Admission(const CoreOptions& options, const LogitsPostProcessors& post_processors, RequestTable& requests,
                     LoadAdapter load, ComposeAdapters compose)
    : options_(options),
      post_processors_(post_processors),
      requests_(requests),
      inbox_(options.sequencesPerRound()),
      shares_(options.max_queue_size),
      taken_(inbox_.makeTaken()),
      queue_(options.fairness),
      holds_(adapters_, options.adapter_pin_capacity),
      adapters_(AdapterCapacity{.host = options.adapter_host_capacity,
                                .device = options.scheduler.adapter_budget,
                                .reject_when_full = options.reject_when_full},
                std::move(load), std::move(compose), options.adapter_workers, [this] { wake(); }) {
  adapters_.cache().observe(options.adapter_observer);
}

std::unique_ptr<Request> Admission::make(IdType id, const executor::Request& asked,
                                         std::shared_ptr<const Callback> callback) const {
  auto request =
      std::make_unique<Request>(id, asked, std::move(callback), options_.requests.max_seq_len, options_.make_strategy);
  auto refusal = refusalOf(asked, options_.requests);
  if (!refusal) refusal = post_processors_.refusalOf(asked);
  if (!refusal) {
    const int32_t vocab = options_.requests.vocab_size;
    auto unknown = unknownTokenRefusal(asked, vocab, vocab, vocab);
    if (unknown && asked.getLoraConfig() && options_.requests.added_tokens > 0) {
      request->unknown_tokens = std::make_shared<const executor::Request>(asked);
    } else {
      refusal = std::move(unknown);
    }
  }
  if (refusal) {
    request->refusal.emplace(*refusal);
    return request;
  }
  if (asked.getLoraConfig()) request->lora_source = tensorSource(*asked.getLoraConfig(), options_.adapter_row_bytes);
  for (const auto& sequence : request->sequences()) {
    sequence->post_processing = post_processors_.of(asked);
    if (options_.token_masks) sequence->masks = options_.token_masks(asked);
  }
  return request;
}

std::vector<IdType> Admission::enqueue(std::span<const executor::Request> requests, const Callback& callback,
                                       ResponseQueue& responses) {
  for (const auto& request : requests) post_processors_.check(request);
  std::vector<IdType> ids;
  ids.reserve(requests.size());
  size_t entered = 0;
  // Requires mutex_.
  const auto leave = [&]() noexcept {
    while (entered > 0) {
      const auto& request = requests[--entered];
      shares_.leave(request.getClientId(), numSequences(request));
    }
  };
  {
    const std::lock_guard lock(mutex_);
    if (shutdown_) fail(ErrorCode::kUnsupported, "Shutdown called, cannot enqueue requests");
    try {
      for (const auto& request : requests) {
        shares_.enter(request.getClientId(), numSequences(request));
        ++entered;
      }
    } catch (...) {
      leave();
      throw;
    }
    for (const auto& request : requests) {
      ids.push_back(next_id_);
      next_id_ += static_cast<IdType>(numSequences(request));
    }
  }
  // Checking prompts and hashing adapter tensors takes long, so it runs without the lock.
  size_t opened = 0;
  try {
    std::shared_ptr<const Callback> shared;
    if (callback != nullptr) shared = std::make_shared<const Callback>(callback);
    RequestTable::Requests made;
    for (size_t i = 0; i < requests.size(); ++i) made.emplace(ids[i], make(ids[i], requests[i], shared));
    const std::lock_guard lock(mutex_);
    if (shutdown_) fail(ErrorCode::kUnsupported, "Shutdown called, cannot enqueue requests");
    for (; callback == nullptr && opened < ids.size(); ++opened) responses.open(ids[opened]);
    inbox_.add(std::move(made));
    woken_ = true;
    wake_.notify_one();
  } catch (...) {
    while (opened > 0) responses.forget(ids[--opened]);
    const std::lock_guard lock(mutex_);
    leave();
    throw;
  }
  return ids;
}

void Admission::post(Inbox::Command command) {
  const std::lock_guard lock(mutex_);
  inbox_.add(std::move(command));
  woken_ = true;
  wake_.notify_one();
}

void Admission::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_one();
}

// Retries on std::bad_alloc, because a caller may cancel for the very reason that memory is short.
void Admission::cancel(IdType id) {
  constexpr int kTries = 100;
  for (int i = 1;; ++i) {
    try {
      const std::lock_guard lock(mutex_);
      if (inbox_.cancel(id)) return;
      inbox_.add(Inbox::Cancel{id});
      woken_ = true;
      wake_.notify_one();
      return;
    } catch (const std::bad_alloc&) {
      if (i == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void Admission::registerAdapter(IdType task_id, std::shared_ptr<const AdapterSource> source) {
  post(Inbox::SetAdapter{task_id, std::move(source)});
}

void Admission::unregisterAdapter(IdType task_id) { post(Inbox::SetAdapter{task_id, nullptr}); }

void Admission::loadAdapter(IdType task_id, bool pin, AdapterHolds::Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (!shutdown_) {
      inbox_.add(Inbox::LoadAdapter{task_id, pin, std::move(done)});
      woken_ = true;
      wake_.notify_one();
      return;
    }
  }
  if (done) done(shutdownError());
}

void Admission::unpinAdapter(IdType task_id) { post(Inbox::MovePin{task_id, 0}); }

void Admission::moveAdapterPin(IdType from, IdType to) { post(Inbox::MovePin{from, to}); }

void Admission::endHolds() noexcept { holds_.end(shutdownError()); }

std::optional<executor::AdapterState> Admission::adapterState(IdType task_id) {
  auto states = askStates(task_id, 1);
  if (states.empty() || states.front().taskId != task_id) return std::nullopt;
  return std::move(states.front());
}

// There may be tens of thousands of tasks, and the steps of all requests would wait for one copy of their states. So
// the step thread copies a portion between two steps. Only one caller lists at a time, so that several callers do not
// get several portions.
std::vector<executor::AdapterState> Admission::adapterStates() {
  const std::lock_guard lock(listing_);
  std::vector<executor::AdapterState> all;
  for (IdType first = 0;;) {
    auto portion = askStates(first, kStatesPerStep);
    const bool last = portion.size() < kStatesPerStep || portion.back().taskId == std::numeric_limits<IdType>::max();
    if (!last) first = portion.back().taskId + 1;
    std::ranges::move(portion, std::back_inserter(all));
    if (last) return all;
  }
}

std::vector<executor::AdapterState> Admission::askStates(IdType first, size_t most) {
  Inbox::AskedStates asked{first, most, {}};
  auto states = asked.states.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (shutdown_) return {};
    inbox_.add(std::move(asked));
    woken_ = true;
    wake_.notify_one();
  }
  try {
    return states.get();
  } catch (const std::future_error&) {  // the executor was shut down before its step thread answered
    return {};
  }
}

bool Admission::acceptsRequests() const {
  const std::lock_guard lock(mutex_);
  return !shutdown_ && !shares_.full();
}

void Admission::shutdown() {
  const std::lock_guard lock(mutex_);
  shutdown_ = true;
  wake_.notify_one();
}

bool Admission::waitForWork(bool idle) {
  std::unique_lock lock(mutex_);
  const auto awake = [this] { return woken_ || shutdown_; };
  if (idle && with_deadline_ > 0) {
    wake_.wait_until(lock, std::min(first_deadline_, Clock::now() + std::chrono::hours(24)), awake);
  } else if (idle) {
    wake_.wait(lock, awake);
  }
  inbox_.take(taken_);
  woken_ = !inbox_.empty();
  return !shutdown_;
}

void Admission::takeInbox() noexcept {
  for (auto& command : taken_.commands) carryOut(command);
  for (auto& request : taken_.requests) admit(std::move(request));
  adapters_.forgetReplaced(taken_.changes_seen);
  taken_.commands.clear();
  taken_.requests.clear();
}

void Admission::takeRest() noexcept {
  for (bool more = true; more;) {
    takeInbox();
    const std::lock_guard lock(mutex_);
    more = !inbox_.empty();
    inbox_.take(taken_);
  }
}

void Admission::carryOut(Inbox::Command& command) noexcept {
  if (const auto* cancelled = std::get_if<Inbox::Cancel>(&command)) {
    if (Request* found = requests_.find(cancelled->id)) requests_.decide(*found, FinishReason::kCANCELLED);
  } else if (auto* asked = std::get_if<Inbox::AskedStates>(&command)) {
    answer(*asked);
  } else if (auto* load = std::get_if<Inbox::LoadAdapter>(&command)) {
    holds_.load(load->task_id, load->pin, std::move(load->done));
    claims_changed_ = true;
  } else if (const auto* move = std::get_if<Inbox::MovePin>(&command)) {
    move->to != 0 ? holds_.movePin(move->from, move->to) : holds_.unpin(move->from);
    claims_changed_ = true;
  } else {
    setAdapter(std::get<Inbox::SetAdapter>(command));
  }
}

void Admission::answer(Inbox::AskedStates& asked) const noexcept {
  try {
    auto states = adapters_.states(asked.first, asked.most);
    for (executor::AdapterState& state : states) holds_.complete(state);
    asked.states.set_value(std::move(states));
  } catch (const std::bad_alloc&) {
    asked.states.set_exception(std::current_exception());
  }
}

void Admission::setAdapter(const Inbox::SetAdapter& adapter) noexcept {
  claims_changed_ = true;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    try {
      if (adapter.source != nullptr)
        adapters_.registerSource(adapter.task_id, adapter.source, adapter.number);
      else
        adapters_.unregister(adapter.task_id, adapter.number);
      holds_.renewed(adapter.task_id);
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } catch (...) {
      return;
    }
  }
}

void Admission::admit(Inbox::Node node) noexcept {
  Request& request = requests_.add(std::move(node));
  if (const Deadline next = request.nextDeadline()) {
    ++with_deadline_;
    first_deadline_ = std::min(first_deadline_, *next);
  }
  // The strategy may begin with fewer sequences than were asked for.
  const int32_t later = request.maxSequences() - static_cast<int32_t>(request.sequences().size());
  if (later > 0) leaveShares(request, later);
  if (request.cancelled) return requests_.decide(request, FinishReason::kCANCELLED);
  try {
    if (request.refusal) throw Error(*request.refusal);
    for (const auto& sequence : request.sequences()) {
      if (request.hasAdapters()) {
        const uint64_t seen = request.adapter_changes;
        sequence->adapter = request.lora ? adapters_.lease(*request.lora, request.lora_source, seen)
                                         : adapters_.lease(request.composition, seen);
        sequence->adapter.client = request.client_id;
        claim_shares_.arrived(request.client_id, Clock::now());
        claims_changed_ = true;
      }
      enqueue(*sequence);
    }
    request.lora_source = nullptr;
  } catch (const std::exception& error) {
    requests_.decide(request, error);
  }
}

void Admission::takeLoadedAdapters() {
  while (const auto load = adapters_.takeLoaded()) {
    claims_changed_ = true;
    if (load->parts == nullptr && !load->reported) log::warn("{}", load->error);
    holds_.give(*load);
    queue_.forEachWaiting([&](QueueEntry& entry) {
      auto& sequence = static_cast<Sequence&>(entry);
      try {
        adapters_.give(*load, sequence.adapter);
      } catch (const std::exception& error) {
        requests_.decide(sequence.request, error);
        adapters_.release(sequence.adapter);  // now, because the next load may be of another adapter of it
      }
    });
  }
}

void Admission::endOverdue() {
  if (with_deadline_ == 0) return;
  const auto now = Clock::now();
  if (now < first_deadline_) return;
  first_deadline_ = Clock::time_point::max();
  for (const auto& [_, request] : requests_.all()) {
    const Deadline next = request->nextDeadline();
    if (!next) continue;
    if (*next <= now)
      requests_.decide(*request, FinishReason::kTIMED_OUT);
    else
      first_deadline_ = std::min(first_deadline_, *next);
  }
}

void Admission::claimAdapters() {
  if (!claims_changed_) return;
  clients_share_adapters_ = claim_shares_.shared(Clock::now());
  if (clients_share_adapters_) {
    claim_shares_.clear();
    for (const auto& [_, request] : requests_.all()) {
      for (const auto& sequence : request->sequences()) countClaims(*sequence);
    }
  }
  claims_changed_ = false;  // not before, because counting may throw
  adapters_.beginClaims();
  ++claim_rounds_;
  size_t seen = 0;
  beginTurns();
  Sequence* next = nextTurn();
  for (; next != nullptr && seen < kLookahead; next = nextTurn(), ++seen) {
    if (std::exchange(next->request.claim_round, claim_rounds_) == claim_rounds_) continue;
    try {
      claimOf(*next);
    } catch (const std::exception& error) {
      requests_.decide(next->request, error);
    }
  }
  claims_cut_ = next != nullptr;
  holds_.claim();
}

// Claims the adapters of `first` and of the sequences of its request that wait behind it together, so that all run with
// the same content.
void Admission::claimOf(Sequence& first) {
  claiming_.clear();
  const auto forEachSibling = [&](auto visit) {
    for (QueueEntry* at = &first; at != nullptr; at = FairQueue::nextOfClient(*at)) {
      auto& sequence = static_cast<Sequence&>(*at);
      if (&sequence.request != &first.request) break;
      visit(sequence);
    }
  };
  forEachSibling([&](Sequence& sequence) { claiming_.push_back(&sequence.adapter); });
  ClientClaims* const own = clients_share_adapters_ ? &claim_shares_.of(first.request.client_id) : nullptr;
  adapters_.claim(claiming_, first.times_bypassed, options_.scheduler.max_bypasses, own);
  forEachSibling([&](Sequence& sequence) {
    if (clients_share_adapters_) countClaims(sequence);
    checkTokens(sequence);
  });
}

void Admission::countClaims(const Sequence& sequence) {
  if (sequence.adapter.claimed) claim_shares_.add(sequence.request.client_id, sequence.adapter);
}

// Checks tokens outside the model's vocabulary against the adapter's vocabulary, once it is loaded. Throws Error.
void Admission::checkTokens(const Sequence& sequence) const {
  Request& request = sequence.request;
  if (request.unknown_tokens == nullptr || !sequence.adapter.ready()) return;
  const int32_t model = options_.requests.vocab_size;
  const auto own = [&](int64_t vocab) { return std::max(model, static_cast<int32_t>(vocab)); };
  const PreparedAdapter& adapter = *sequence.adapter.parts;
  const auto refusal =
      unknownTokenRefusal(*request.unknown_tokens, own(adapter.vocab_size), own(adapter.input_vocab_size), model);
  if (refusal) fail(refusal->code(), "{}", refusal->what());
  request.unknown_tokens = nullptr;
}

void Admission::leaveShares(const Request& request, int32_t sequences) noexcept {
  const std::lock_guard lock(mutex_);
  shares_.leave(request.client_id, sequences);
}

void Admission::started(Sequence& sequence) noexcept {
  if (sequence.isNew()) leaveShares(sequence.request, 1);
  sequence.request.has_started = true;
  queue_.start(sequence);
  // A sequence that was beyond kLookahead may claim its adapters now.
  if (claims_cut_) claims_changed_ = true;
}

void Admission::paused(Sequence& sequence) noexcept {
  adapters_.leave(sequence.adapter);
  queue_.pause(sequence);
}

void Admission::enqueue(Sequence& sequence) {
  const Request& request = sequence.request;
  if (request.share && options_.fairness == Fairness::kWeighted)
    queue_.add(sequence, request.share->group, request.share->weight);
  else
    queue_.add(sequence, request.client_id);
  sequence.queue();
}

void Admission::enterFork(Sequence& sequence) {
  enqueue(sequence);
  if (sequence.request.hasAdapters()) claims_changed_ = true;
}

void Admission::release(Sequence& sequence) noexcept {
  if (sequence.isNew()) leaveShares(sequence.request, 1);
  withdraw(sequence);
  if (claims_cut_) claims_changed_ = true;
  if (sequence.adapter.number == 0) return;
  adapters_.release(sequence.adapter);
  claims_changed_ = true;
}

void Admission::withdraw(Sequence& sequence) noexcept {
  if (FairQueue::contains(sequence)) queue_.remove(sequence, sequence.runs());
}

void Admission::ended(const Request& request) noexcept {
  if (request.deadline || request.queue_deadline) --with_deadline_;
}

}  // namespace chorus
