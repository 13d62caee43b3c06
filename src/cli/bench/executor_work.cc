#include "cli/bench/executor_work.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/error.h"

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;

// Shared with the executor's callbacks, because after an error some callbacks are still to come.
class RequestTimes {
 public:
  explicit RequestTimes(size_t requests) : times_(requests), running_(requests) {}

  void onResponse(size_t request, const executor::Response& response, Clock::time_point start) {
    const double time = std::chrono::duration<double>(Clock::now() - start).count();
    const std::lock_guard lock(mutex_);
    if (running_ == 0) return;
    if (response.hasError()) {
      error_ = response.getErrorMsg();
      running_ = 0;
      changed_.notify_one();
      return;
    }
    const executor::Result& result = response.getResult();
    const size_t tokens = result.outputTokenIds.empty() ? 0 : result.outputTokenIds[0].size();
    times_[request].insert(times_[request].end(), tokens, time);
    if (result.isFinal && --running_ == 0) changed_.notify_one();
  }

  TokenTimes wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
    if (!error_.empty()) fail(ErrorCode::kInternal, "bench: {}", error_);
    return std::move(times_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  TokenTimes times_;
  size_t running_;
  std::string error_;
};
}  // namespace

TokenTimes runWork(executor::Executor& executor, const ExecutorWork& work, std::mt19937& rng) {
  std::uniform_int_distribution<int32_t> token(0, executor.getVocabSize() - 1);
  std::vector<executor::Request> requests;
  for (int i = 0; i < work.batch; ++i) {
    executor::VecTokens prompt(static_cast<size_t>(work.prompt));
    for (int32_t& t : prompt) t = token(rng);
    executor::Request request(std::move(prompt), work.new_tokens + 1, /*streaming=*/true);
    request.setEndId(-1);
    if (work.adapters > 0) {
      request.setLoraConfig(executor::LoraConfig(static_cast<executor::IdType>(1 + i % work.adapters)));
    }
    requests.push_back(std::move(request));
  }
  const auto times = std::make_shared<RequestTimes>(requests.size());
  const auto start = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    executor.enqueueRequest(
        requests[i], [times, i, start](const executor::Response& response) { times->onResponse(i, response, start); });
  }
  return times->wait();
}

std::vector<TokenTimes> runPasses(executor::Executor& executor, const ExecutorWork& work, int warmup, int passes) {
  std::mt19937 rng(20240229);
  for (int i = 0; i < warmup; ++i) runWork(executor, work, rng);
  std::vector<TokenTimes> measured;
  for (int i = 0; i < passes; ++i) measured.push_back(runWork(executor, work, rng));
  return measured;
}

}  // namespace chorus
