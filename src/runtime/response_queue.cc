#include "runtime/response_queue.h"

#include <fmt/format.h>

#include <utility>

namespace chorus {

using executor::IdType;
using executor::Response;

ResponseQueue::Visit::Visit(ResponseQueue& queue) : queue_(queue) {
  const std::lock_guard lock(queue_.mutex_);
  ++queue_.visits_;
}

// Notifies while it holds the lock, because the queue may be destroyed as soon as the lock is released.
ResponseQueue::Visit::~Visit() {
  const std::lock_guard lock(queue_.mutex_);
  if (--queue_.visits_ == 0) queue_.left_.notify_all();
}

ResponseQueue::~ResponseQueue() {
  close();
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] { return visits_ == 0; });
}

void ResponseQueue::open(IdType id) {
  const std::lock_guard lock(mutex_);
  open_.try_emplace(id);
}

void ResponseQueue::forget(IdType id) noexcept {
  const std::lock_guard lock(mutex_);
  open_.erase(id);
}

void ResponseQueue::add(Response& response) {
  const auto open = open_.find(response.getRequestId());
  if (open == open_.end()) return;
  auto& ready = open->second.ready;
  ready.reserve(ready.size() + 1);
  with_responses_.insert(open->first);
  open->second.complete = response.hasError() || response.getResult().isFinal;
  ready.push_back(std::move(response));
}

void ResponseQueue::push(std::vector<Response>& responses) {
  if (responses.empty()) return;
  size_t added = 0;
  const auto done = [&] {
    responses.erase(responses.begin(), responses.begin() + static_cast<ptrdiff_t>(added));
    arrived_.notify_all();
  };
  try {
    const std::lock_guard lock(mutex_);
    for (auto& response : responses) {
      add(response);
      ++added;
    }
  } catch (...) {
    done();
    throw;
  }
  done();
}

void ResponseQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_all();
}

template <typename Ready>
void ResponseQueue::wait(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Ready ready) {
  const auto done = [&] { return closed_ || ready(); };
  if (deadline)
    arrived_.wait_until(lock, *deadline, done);
  else
    arrived_.wait(lock, done);
}

std::vector<Response> ResponseQueue::take(std::map<IdType, Open>::iterator open) {
  auto responses = std::exchange(open->second.ready, {});
  with_responses_.erase(open->first);
  if (open->second.complete) open_.erase(open);
  return responses;
}

std::vector<Response> ResponseQueue::awaitAny(const Timeout& timeout) {
  const Visit visit(*this);
  std::unique_lock lock(mutex_);
  wait(lock, deadlineAfter(timeout), [this] { return !with_responses_.empty(); });
  std::vector<Response> all;
  while (!with_responses_.empty()) {
    auto responses = take(open_.find(*with_responses_.begin()));
    for (auto& response : responses) all.push_back(std::move(response));
  }
  return all;
}

std::vector<Response> ResponseQueue::awaitUntil(IdType id, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  wait(lock, deadline, [&] {
    const auto open = open_.find(id);
    return open == open_.end() || !open->second.ready.empty();
  });
  const auto open = open_.find(id);
  if (open == open_.end()) {
    return {Response(id, fmt::format("ReqId {} has already been processed and was terminated.", id), std::nullopt,
                     executor::ResponseErrorCode::kNOT_FOUND)};
  }
  return take(open);
}

std::vector<Response> ResponseQueue::awaitOne(IdType id, const Timeout& timeout) {
  const Visit visit(*this);
  return awaitUntil(id, deadlineAfter(timeout));
}

std::vector<std::vector<Response>> ResponseQueue::awaitEach(const std::vector<IdType>& ids, const Timeout& timeout) {
  const Visit visit(*this);
  const Deadline deadline = deadlineAfter(timeout);
  std::vector<std::vector<Response>> all;
  for (const IdType id : ids) all.push_back(awaitUntil(id, deadline));
  return all;
}

executor::SizeType32 ResponseQueue::numReady(const std::optional<IdType>& id) const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [open_id, open] : open_) {
    if (!id || *id == open_id) count += open.ready.size();
  }
  return static_cast<executor::SizeType32>(count);
}

int ResponseQueue::numWaiting() const {
  const std::lock_guard lock(mutex_);
  return visits_;
}

}  // namespace chorus
