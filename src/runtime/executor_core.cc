#include "runtime/executor_core.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/adapter_cache/tensor_source.h"

namespace chorus {
namespace {

using executor::FinishReason;
using executor::IdType;

}  // namespace

ExecutorCore::ExecutorCore(const CoreOptions& options, std::unique_ptr<StepRunner> runner, LoadAdapter load)
    : options_(options),
      post_processors_(options.logits_post_processors),
      runner_(std::move(runner)),
      queued_(options.max_queue_size),
      blocks_(options.scheduler.kv_blocks, options.scheduler.tokens_per_block, options.scheduler.max_batch_size,
              options.requests.max_seq_len, ~uint64_t{0}, {&cache_namespaces_, &scopes_}),
      builder_(options.scheduler.max_batch_size, options.scheduler.max_num_tokens),
      sampler_(options.requests.vocab_size + options.requests.added_tokens, options.sampler_threads),
      free_slots_(static_cast<size_t>(options.scheduler.max_batch_size)),
      adapters_(std::make_unique<AdapterStore>(
          AdapterCapacity{options.adapter_host_capacity, options.scheduler.adapter_budget}, std::move(load),
          options.adapter_workers, [this] { wake(); })) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
  candidates_.reserve(free_slots_.size() + kLookahead);
  views_.reserve(free_slots_.size() + kLookahead);
  plan_.reserve(views_.capacity(), free_slots_.size());
  running_.reserve(free_slots_.size());
  adapters_->cache().observe(options.adapter_observer);
  countBlocks();
  publishStats();
  thread_ = std::thread([this] { loop(); });
}

ExecutorCore::~ExecutorCore() { shutdown(); }

void ExecutorCore::makeSequences(IdType first_id, const executor::Request& request, const Callback& callback,
                                 Requests& made) const {
  const int32_t count = numSequences(request);
  auto refusal = refusalOf(request, options_.requests);
  if (!refusal) refusal = post_processors_.refusalOf(request);
  std::shared_ptr<const executor::Request> unknown_tokens;
  if (!refusal) {
    const int32_t vocab = options_.requests.vocab_size;
    auto unknown = unknownTokenRefusal(request, vocab, vocab, vocab);
    if (unknown && request.getLoraConfig() && options_.requests.added_tokens > 0) {
      unknown_tokens = std::make_shared<const executor::Request>(request);
    } else {
      refusal = std::move(unknown);
    }
  }
  std::shared_ptr<const AdapterSource> source;
  if (!refusal && request.getLoraConfig())
    source = tensorSource(*request.getLoraConfig(), options_.adapter_element_bytes);
  std::shared_ptr<SequenceGroup> group;
  if (count > 1) group = std::make_shared<SequenceGroup>(SequenceGroup{first_id, count});
  for (int32_t i = 0; i < count; ++i) {
    const IdType id = first_id + static_cast<IdType>(i);
    const int32_t max_seq_len = options_.requests.max_seq_len;
    auto active = count == 1
                      ? std::make_unique<ActiveRequest>(id, request, callback, max_seq_len)
                      : std::make_unique<ActiveRequest>(id, requestOfSequence(request, i), callback, max_seq_len);
    if (refusal) active->refusal.emplace(*refusal);
    active->post_processing = post_processors_.of(request);
    active->lora_source = source;
    active->unknown_tokens = unknown_tokens;
    active->group = group;
    active->sequence_index = i;
    made.emplace(id, std::move(active));
  }
}

std::vector<IdType> ExecutorCore::enqueue(std::span<const executor::Request> requests, const Callback& callback) {
  for (const auto& request : requests) post_processors_.check(request);
  std::vector<IdType> ids;
  ids.reserve(requests.size());
  size_t entered = 0;
  // Requires mutex_.
  const auto leave = [&]() noexcept {
    while (entered > 0) {
      const auto& request = requests[--entered];
      queued_.leave(request.getClientId(), numSequences(request));
    }
  };
  {
    const std::lock_guard lock(mutex_);
    if (shutdown_) fail(ErrorCode::kUnsupported, "Shutdown called, cannot enqueue requests");
    try {
      for (const auto& request : requests) {
        queued_.enter(request.getClientId(), numSequences(request));
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
    Requests made;
    for (size_t i = 0; i < requests.size(); ++i) makeSequences(ids[i], requests[i], callback, made);
    const std::lock_guard lock(mutex_);
    if (shutdown_) fail(ErrorCode::kUnsupported, "Shutdown called, cannot enqueue requests");
    inbox_.reserve(inbox_.size() + made.size());
    for (; callback == nullptr && opened < ids.size(); ++opened) responses_.open(ids[opened]);
    while (!made.empty()) inbox_.emplace_back(made.extract(made.begin()));
    woken_ = true;
    wake_.notify_one();
  } catch (...) {
    while (opened > 0) responses_.forget(ids[--opened]);
    const std::lock_guard lock(mutex_);
    leave();
    throw;
  }
  return ids;
}

void ExecutorCore::post(Command command) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back(std::move(command));
  woken_ = true;
  wake_.notify_one();
}

void ExecutorCore::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_one();
}

// Retries on std::bad_alloc, because a caller may cancel for the very reason that memory is short.
void ExecutorCore::cancel(IdType id) {
  constexpr int kTries = 100;
  for (int i = 1;; ++i) {
    try {
      return post(Cancel{id});
    } catch (const std::bad_alloc&) {
      if (i == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void ExecutorCore::registerAdapter(IdType task_id, std::shared_ptr<const AdapterSource> source) {
  post(SetAdapter{task_id, std::move(source)});
}

void ExecutorCore::unregisterAdapter(IdType task_id) { post(SetAdapter{task_id, nullptr}); }

void ExecutorCore::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    shutdown_ = true;
    wake_.notify_one();
  }
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

bool ExecutorCore::acceptsRequests() const {
  const std::lock_guard lock(mutex_);
  return !shutdown_ && !queued_.full();
}

executor::KvCacheStats ExecutorCore::kvCacheStats() const {
  const std::lock_guard lock(stats_mutex_);
  return published_kv_stats_;
}

executor::AdapterCacheStats ExecutorCore::adapterCacheStats() const {
  const std::lock_guard lock(stats_mutex_);
  return published_adapter_stats_;
}

void ExecutorCore::loop() {
  while (waitForWork()) {
    try {
      round();
      failed_rounds_ = 0;
    } catch (...) {
      roundFailed(std::current_exception());
    }
  }
  takeInbox();
  // Retries while memory is short, but not for ever: nobody must wait without end for an answer.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries && !(requests_.empty() && outgoing_.empty() && calls_.empty()); ++i) {
    try {
      for (const auto& [_, request] : requests_) decide(*request, FinishReason::kCANCELLED);
      endDecided();
      countBlocks();
      publishStats();
      deliver();
    } catch (...) {
      roundFailed(std::current_exception());
    }
  }
  while (!requests_.empty()) forget(*requests_.begin()->second);
  responses_.close();
}

void ExecutorCore::round() {
  takeInbox();
  takeLoadedAdapters();
  endOverdue();
  endDecided();
  claimAdapters();
  endDecided();
  plan();
  idle_ = !runStep() && !claims_changed_;
  endDecided();
  countBlocks();
  publishStats();
  deliver();
}

// A failed round loses nothing: the next one does what it left undone.
void ExecutorCore::roundFailed(const std::exception_ptr& error) noexcept {
  idle_ = false;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      log::error("a round of the executor failed: {}", known.what());
      // A cause other than a lack of memory would repeat itself, so after 10 failures in a row all requests fail.
      if (++failed_rounds_ < 10) return;
      failed_rounds_ = 0;
      for (const auto& [_, request] : requests_) decide(*request, known);
    }
  } catch (...) {
    // Logging is best effort: it may itself run out of memory.
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool ExecutorCore::waitForWork() {
  std::unique_lock lock(mutex_);
  const auto awake = [this] { return woken_ || shutdown_; };
  if (idle_ && with_deadline_ > 0) {
    wake_.wait_until(lock, std::min(first_deadline_, Clock::now() + std::chrono::hours(24)), awake);
  } else if (idle_) {
    wake_.wait(lock, awake);
  }
  woken_ = false;
  taken_.swap(inbox_);
  return !shutdown_;
}

void ExecutorCore::takeInbox() noexcept {
  for (auto& command : taken_) {
    if (auto* request = std::get_if<Requests::node_type>(&command)) {
      admit(std::move(*request));
    } else if (const auto* cancelled = std::get_if<Cancel>(&command)) {
      cancelNow(cancelled->id);
    } else {
      setAdapter(std::get<SetAdapter>(command));
    }
  }
  taken_.clear();
}

void ExecutorCore::setAdapter(const SetAdapter& adapter) noexcept {
  claims_changed_ = true;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    try {
      if (adapter.source != nullptr)
        adapters_->registerSource(adapter.task_id, adapter.source);
      else
        adapters_->unregister(adapter.task_id);
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } catch (...) {
      return;
    }
  }
}

void ExecutorCore::admit(Requests::node_type node) noexcept {
  ActiveRequest& request = *requests_.insert(std::move(node)).position->second;
  if (request.deadline) {
    ++with_deadline_;
    first_deadline_ = std::min(first_deadline_, *request.deadline);
  }
  try {
    if (request.refusal) throw Error(*request.refusal);
    if (request.lora || !request.composition.empty()) {
      request.adapter =
          request.lora ? adapters_->lease(*request.lora, request.lora_source) : adapters_->lease(request.composition);
      request.lora_source = nullptr;
      claims_changed_ = true;
    }
    waiting_.add(request, request.clientId());
    request.queued = true;
  } catch (const std::exception& error) {
    decide(request, error);
  }
}

void ExecutorCore::cancelNow(IdType id) noexcept {
  for (auto request = requests_.lower_bound(id); request != requests_.end() && request->second->requestId() == id;
       ++request) {
    decide(*request->second, FinishReason::kCANCELLED);
  }
}

void ExecutorCore::takeLoadedAdapters() {
  while (const auto load = adapters_->takeLoaded()) {
    claims_changed_ = true;
    if (load->parts == nullptr) log::warn("{}", load->error);
    waiting_.forEachWaiting([&](QueueEntry& entry) {
      auto& request = static_cast<ActiveRequest&>(entry);
      try {
        adapters_->give(*load, request.adapter);
      } catch (const std::exception& error) {
        decide(request, error);
        adapters_->release(request.adapter);  // now, because the next load may be of another adapter of it
      }
    });
  }
}

void ExecutorCore::endOverdue() {
  if (with_deadline_ == 0) return;
  const auto now = Clock::now();
  if (now < first_deadline_) return;
  first_deadline_ = Clock::time_point::max();
  for (const auto& [_, request] : requests_) {
    if (!request->deadline) continue;
    if (*request->deadline <= now)
      decide(*request, FinishReason::kTIMED_OUT);
    else
      first_deadline_ = std::min(first_deadline_, *request->deadline);
  }
}

void ExecutorCore::claimAdapters() {
  if (!claims_changed_) return;
  claims_changed_ = false;
  adapters_->beginClaims();
  ++claim_rounds_;
  size_t seen = 0;
  waiting_.beginTurns();
  QueueEntry* next = waiting_.nextTurn();
  for (; next != nullptr && seen < kLookahead; next = waiting_.nextTurn(), ++seen) {
    auto& request = static_cast<ActiveRequest&>(*next);
    if (request.group != nullptr && std::exchange(request.group->claim_round, claim_rounds_) == claim_rounds_) continue;
    try {
      claimOf(request);
    } catch (const std::exception& error) {
      decide(request, error);
    }
  }
  claims_cut_ = next != nullptr;
}

// Claims the adapters of `first` and of its waiting siblings together, so that all run with the same content.
void ExecutorCore::claimOf(ActiveRequest& first) {
  claiming_.clear();
  const auto forEachSibling = [&](auto visit) {
    for (QueueEntry* at = &first; at != nullptr; at = FairQueue::nextOfClient(*at)) {
      auto& sequence = static_cast<ActiveRequest&>(*at);
      if (at != &first && (first.group == nullptr || sequence.group != first.group)) break;
      visit(sequence);
    }
  };
  forEachSibling([&](ActiveRequest& sequence) { claiming_.push_back(&sequence.adapter); });
  adapters_->claim(claiming_, first.times_bypassed, options_.scheduler.max_bypasses);
  forEachSibling([&](ActiveRequest& sequence) { checkTokens(sequence); });
}

// A sequence left the queue, so one that was beyond kLookahead may claim now.
void ExecutorCore::queueMoved() {
  if (claims_cut_) claims_changed_ = true;
}

// Checks tokens outside the model's vocabulary against the adapter's vocabulary, once it is loaded. Throws Error.
void ExecutorCore::checkTokens(ActiveRequest& request) const {
  if (request.unknown_tokens == nullptr || !request.adapter.ready()) return;
  const int32_t model = options_.requests.vocab_size;
  const auto own = [&](int64_t vocab) { return std::max(model, static_cast<int32_t>(vocab)); };
  const PreparedAdapter& adapter = *request.adapter.parts;
  const auto refusal =
      unknownTokenRefusal(*request.unknown_tokens, own(adapter.vocabSize()), own(adapter.inputVocabSize()), model);
  if (refusal) fail(refusal->code(), "{}", refusal->what());
  request.unknown_tokens = nullptr;
}

}  // namespace chorus
