#include "runtime/executor_core.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "runtime/adapter_cache/tensor_source.h"

namespace chorus {
namespace {

using executor::FinishReason;
using executor::IdType;
using executor::Response;

}  // namespace

ExecutorCore::ExecutorCore(const CoreOptions& options, std::unique_ptr<StepRunner> runner, LoadAdapter load)
    : options_(options),
      post_processors_(options.logits_post_processors),
      runner_(std::move(runner)),
      blocks_(options.scheduler.kv_blocks, options.scheduler.tokens_per_block, options.scheduler.max_batch_size,
              options.requests.max_seq_len),
      builder_(options.scheduler.max_batch_size, options.scheduler.max_num_tokens),
      sampler_(options.requests.vocab_size + options.requests.added_tokens, options.sampler_threads),
      free_slots_(static_cast<size_t>(options.scheduler.max_batch_size)),
      adapters_(std::make_unique<AdapterStore>(
          AdapterCapacity{options.adapter_host_capacity, options.scheduler.adapter_budget}, std::move(load),
          options.adapter_workers, [this] { ring(); })) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
  candidates_.reserve(free_slots_.size() + kLookahead);
  views_.reserve(free_slots_.size() + kLookahead);
  adapters_->cache().observe(options.adapter_observer);
  countBlocks();
  publishStats();
  thread_ = std::thread([this] { loop(); });
}

ExecutorCore::~ExecutorCore() { shutdown(); }

void ExecutorCore::makeSequences(IdType first_id, const executor::Request& request, const Callback& callback,
                                 std::vector<RequestPtr>& made) const {
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
    made.push_back(std::move(active));
  }
}

std::vector<IdType> ExecutorCore::enqueue(std::span<const executor::Request> requests, const Callback& callback) {
  int32_t count = 0;
  for (const auto& request : requests) {
    post_processors_.check(request);
    count += numSequences(request);
  }
  std::vector<IdType> ids;
  {
    const std::lock_guard lock(mutex_);
    if (shutdown_) fail(ErrorCode::kUnsupported, "Shutdown called, cannot enqueue requests");
    if (options_.max_queue_size && queued_ + count > *options_.max_queue_size) {
      fail(ErrorCode::kExhausted, "Maximum queue size of {} has been reached, please try again later",
           *options_.max_queue_size);
    }
    queued_ += count;
    for (const auto& request : requests) {
      ids.push_back(next_id_);
      next_id_ += static_cast<IdType>(numSequences(request));
    }
  }
  // Checking a prompt and hashing an adapter's tensors takes time: not under the lock.
  try {
    std::vector<RequestPtr> made;
    for (size_t i = 0; i < requests.size(); ++i) makeSequences(ids[i], requests[i], callback, made);
    const std::lock_guard lock(mutex_);
    if (shutdown_) fail(ErrorCode::kUnsupported, "Shutdown called, cannot enqueue requests");
    inbox_.reserve(inbox_.size() + made.size());
    if (callback == nullptr) {
      for (const IdType id : ids) responses_.open(id);
    }
    for (auto& request : made) inbox_.emplace_back(std::move(request));
    rung_ = true;
    bell_.notify_one();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    queued_ -= count;
    throw;
  }
  return ids;
}

void ExecutorCore::post(Command command) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back(std::move(command));
  rung_ = true;
  bell_.notify_one();
}

void ExecutorCore::ring() {
  const std::lock_guard lock(mutex_);
  rung_ = true;
  bell_.notify_one();
}

void ExecutorCore::cancel(IdType id) { post(Cancel{id}); }

void ExecutorCore::registerAdapter(IdType task_id, std::shared_ptr<const AdapterSource> source) {
  post(SetAdapter{task_id, std::move(source)});
}

void ExecutorCore::unregisterAdapter(IdType task_id) { post(SetAdapter{task_id, nullptr}); }

void ExecutorCore::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    shutdown_ = true;
    bell_.notify_one();
  }
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

bool ExecutorCore::acceptsRequests() const {
  const std::lock_guard lock(mutex_);
  return !shutdown_ && (!options_.max_queue_size || queued_ < *options_.max_queue_size);
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
    takeInbox();
    takeLoadedAdapters();
    endOverdue();
    claimAdapters();
    endFailedGroups();
    plan();
    idle_ = !runStep() && !claims_changed_;
    countBlocks();
    publishStats();
    deliver();
  }
  takeInbox();
  endAll();
  countBlocks();
  publishStats();
  deliver();
  responses_.close();
}

bool ExecutorCore::waitForWork() {
  std::unique_lock lock(mutex_);
  const auto awake = [this] { return rung_ || shutdown_; };
  if (idle_ && with_deadline_ > 0) {
    auto first = Clock::now() + std::chrono::hours(24);
    for (const auto& [_, request] : waiting_) first = std::min(first, request->deadline.value_or(first));
    bell_.wait_until(lock, first, awake);
  } else if (idle_) {
    bell_.wait(lock, awake);
  }
  rung_ = false;
  taken_.swap(inbox_);
  return !shutdown_;
}

void ExecutorCore::takeInbox() {
  for (auto& command : taken_) {
    if (auto* request = std::get_if<RequestPtr>(&command)) {
      admit(std::move(*request));
    } else if (const auto* cancelled = std::get_if<Cancel>(&command)) {
      cancelNow(cancelled->id);
    } else {
      auto& adapter = std::get<SetAdapter>(command);
      if (adapter.source != nullptr)
        adapters_->registerSource(adapter.task_id, std::move(adapter.source));
      else
        adapters_->unregister(adapter.task_id);
      claims_changed_ = true;
    }
  }
  taken_.clear();
}

void ExecutorCore::admit(RequestPtr request) {
  not_begun_.insert(request->id);
  if (!request->refusal && (request->lora || !request->composition.empty())) {
    try {
      request->adapter = request->lora ? adapters_->ticket(*request->lora, std::move(request->lora_source))
                                       : adapters_->ticket(request->composition);
      claims_changed_ = true;
    } catch (const std::exception& error) {
      request->refusal.emplace(errorCodeOf(error), error.what());
    }
  }
  if (request->refusal) {
    respond(*request, request->errorResponse(request->refusal->code(), request->refusal->what()));
    leftQueue(*request);
    return;
  }
  if (request->deadline) ++with_deadline_;
  const QueuePosition position = request->position;
  waiting_.emplace(position, std::move(request));
}

void ExecutorCore::cancelNow(IdType id) {
  std::vector<ActiveRequest*> cancelled;
  for (const auto& request : running_) {
    if (request->requestId() == id) cancelled.push_back(request.get());
  }
  for (const auto& [_, request] : waiting_) {
    if (request->requestId() == id) cancelled.push_back(request.get());
  }
  for (ActiveRequest* request : cancelled) end(*request, request->response(FinishReason::kCANCELLED));
}

void ExecutorCore::takeLoadedAdapters() {
  while (const auto load = adapters_->takeLoaded()) {
    claims_changed_ = true;
    if (load->parts == nullptr) log::warn("{}", load->error);
    for (const auto& [_, request] : waiting_) {
      try {
        adapters_->give(*load, request->adapter);
      } catch (const std::exception& error) {
        failing_.emplace_back(request.get(), Error(errorCodeOf(error), error.what()));
      }
    }
    endFailing();
  }
}

void ExecutorCore::endOverdue() {
  if (with_deadline_ == 0) return;
  const auto now = Clock::now();
  std::vector<ActiveRequest*> overdue;
  const auto look = [&](ActiveRequest* request) {
    if (request->deadline && *request->deadline <= now) overdue.push_back(request);
  };
  for (const auto& request : running_) look(request.get());
  for (const auto& [_, request] : waiting_) look(request.get());
  for (ActiveRequest* request : overdue) end(*request, request->response(FinishReason::kTIMED_OUT));
}

// What is left of requests that were answered by an error of one of their sequences.
void ExecutorCore::endFailedGroups() {
  if (!std::exchange(group_failed_, false)) return;
  std::vector<ActiveRequest*> rest;
  const auto look = [&](ActiveRequest* request) {
    if (request->group != nullptr && request->group->failed) rest.push_back(request);
  };
  for (const auto& request : running_) look(request.get());
  for (const auto& [_, request] : waiting_) look(request.get());
  for (ActiveRequest* request : rest) forget(*request);
}

void ExecutorCore::claimAdapters() {
  if (!claims_changed_) return;
  claims_changed_ = false;
  adapters_->beginClaims();
  size_t seen = 0;
  auto next = waiting_.begin();
  while (next != waiting_.end() && seen < kLookahead) {
    ActiveRequest& request = *next->second;
    const auto begin = next;
    claiming_.clear();
    // The sequences of a request stand together in the queue.
    do {
      claiming_.push_back(&next->second->adapter);
      ++next;
    } while (next != waiting_.end() && request.group != nullptr && next->second->group == request.group);
    seen += claiming_.size();
    try {
      adapters_->claim(claiming_, request.times_bypassed, options_.scheduler.max_bypasses);
      for (auto sequence = begin; sequence != next; ++sequence) checkTokens(*sequence->second);
    } catch (const std::exception& error) {
      failing_.emplace_back(&request, Error(errorCodeOf(error), error.what()));
    }
  }
  claims_cut_ = next != waiting_.end();
  endFailing();
}

// Somebody left the queue: who stood too far back to claim may stand near enough now.
void ExecutorCore::queueMoved() {
  if (claims_cut_) claims_changed_ = true;
}

// Tokens that the model does not have, once the adapter is there that may have them.
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

void ExecutorCore::endFailing() {
  for (const auto& [request, error] : failing_) end(*request, request->errorResponse(error.code(), error.what()));
  failing_.clear();
}

void ExecutorCore::endAll() {
  while (!running_.empty()) end(*running_.back(), running_.back()->response(FinishReason::kCANCELLED));
  while (!waiting_.empty()) {
    ActiveRequest& request = *waiting_.begin()->second;
    end(request, request.response(FinishReason::kCANCELLED));
  }
}

void ExecutorCore::respond(ActiveRequest& request, Response response) {
  if (request.group != nullptr) {
    if (request.group->failed) return;
    if (response.hasError()) request.group->failed = group_failed_ = true;
  }
  if (response.hasError() || response.getResult().isFinal) ++completed_;
  if (request.callback != nullptr)
    calls_.emplace_back(request.callback, std::move(response));
  else
    outgoing_.push_back(std::move(response));
}

void ExecutorCore::deliver() {
  responses_.push(outgoing_);
  for (const auto& [callback, response] : calls_) {
    try {
      callback(response);
    } catch (const std::exception& error) {
      log::error("a response callback of request {} threw: {}", response.getRequestId(), error.what());
    } catch (...) {
      log::error("a response callback of request {} threw what is not a std::exception", response.getRequestId());
    }
  }
  calls_.clear();
}

void ExecutorCore::releaseResources(ActiveRequest& request) {
  if (request.slot >= 0) {
    blocks_.release(request.slot);
    free_slots_.push_back(request.slot);
    request.slot = -1;
  }
  if (request.adapter.number != 0) {
    adapters_->release(request.adapter);
    claims_changed_ = true;
  }
}

void ExecutorCore::leftQueue(const ActiveRequest& request) {
  if (not_begun_.erase(request.id) == 0) return;
  const std::lock_guard lock(mutex_);
  --queued_;
}

void ExecutorCore::end(ActiveRequest& request, Response response) {
  respond(request, std::move(response));
  forget(request);
}

void ExecutorCore::forget(ActiveRequest& request) {
  if (request.deadline) --with_deadline_;
  leftQueue(request);
  const bool runs = request.slot >= 0;
  if (runs && options_.request_stats_max > 0) {
    ended_.push_back(request.stats(iterations_ - 1));
    ended_.back().stage = executor::RequestStage::kGENERATION_COMPLETE;
  }
  releaseResources(request);
  if (runs)
    std::erase_if(running_, [&](const RequestPtr& other) { return other.get() == &request; });
  else
    waiting_.erase(request.position);
  queueMoved();
}

}  // namespace chorus
