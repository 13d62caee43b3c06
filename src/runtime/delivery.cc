#include "runtime/delivery.h"

#include <cassert>
#include <new>

#include "base/log.h"

namespace chorus {
namespace {

void logFailedCallback(const executor::Response& response, const char* why) noexcept {
  try {
    log::error("a response callback of request {} threw: {}", response.getRequestId(), why);
  } catch (...) {
    // Logging is best effort: it may itself run out of memory.
  }
}

template <typename T>
void reserveOneMore(std::vector<T>& vector) {
  if (vector.size() == vector.capacity()) vector.reserve(2 * vector.size() + 8);
}

}  // namespace

void Delivery::reserve() {
  reserveOneMore(outgoing_);
  reserveOneMore(calls_);
}

void Delivery::add(const Request& request, executor::Response response) noexcept {
  if (response.hasError() || response.getResult().isFinal) ++completed_;
  if (request.callback != nullptr)
    calls_.push_back({request.callback, std::move(response)});
  else
    outgoing_.push_back(std::move(response));
}

void Delivery::deliver() {
  responses_.push(outgoing_);
  size_t called = 0;
  while (called < calls_.size() && call(calls_[called])) ++called;
  calls_.erase(calls_.begin(), calls_.begin() + static_cast<ptrdiff_t>(called));
  if (!calls_.empty()) throw std::bad_alloc();
}

// Returns false if the callback threw std::bad_alloc and must be called again.
bool Delivery::call(const Call& call) noexcept {
  try {
    (*call.callback)(call.response);
  } catch (const std::bad_alloc&) {
    if (++refused_calls_ < 100) return false;
  } catch (const std::exception& error) {
    logFailedCallback(call.response, error.what());
  } catch (...) {
    logFailedCallback(call.response, "an object that is not a std::exception");
  }
  refused_calls_ = 0;
  return true;
}

}  // namespace chorus
