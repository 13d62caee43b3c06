#include "cli/bench/adapter_churn.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "cli/bench/percentiles.h"

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;
using executor::IdType;

// Shared with the executor's callbacks, which record into it.
class Meter {
 public:
  void measure(bool on) {
    const std::lock_guard lock(mutex_);
    measuring_ = on;
  }
  void begun() {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  // `last` is the time of the stream's previous token; it is updated.
  void onStream(const executor::Response& response, std::optional<Clock::time_point>& last) {
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (!failed(response)) {
      if (last && measuring_) times_.between.push_back(std::chrono::duration<double>(now - *last).count());
      last = now;
      ++tokens_;
    }
    ended(response);
  }
  void onAdapter(const executor::Response& response, Clock::time_point start, bool& first) {
    const double time = std::chrono::duration<double>(Clock::now() - start).count();
    const std::lock_guard lock(mutex_);
    if (!failed(response) && first) {
      times_.first.push_back(time);
      first = false;
    }
    ended(response);
  }
  void waitForTokens(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_ >= count || !error_.empty(); });
  }
  ChurnTimes finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
    if (!error_.empty()) fail(ErrorCode::kInternal, "bench: {}", error_);
    return std::move(times_);
  }

 private:
  bool failed(const executor::Response& response) {
    if (!response.hasError()) return false;
    error_ = response.getErrorMsg();
    return true;
  }
  void ended(const executor::Response& response) {
    if (response.hasError() || response.getResult().isFinal) --running_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  ChurnTimes times_;
  std::string error_;
  int64_t tokens_ = 0;
  int running_ = 0;
  bool measuring_ = false;
};

executor::Request randomRequest(const executor::Executor& executor, int prompt, int new_tokens, std::mt19937& rng) {
  std::uniform_int_distribution<int32_t> token(0, executor.getVocabSize() - 1);
  executor::VecTokens tokens(static_cast<size_t>(prompt));
  for (int32_t& t : tokens) t = token(rng);
  executor::Request request(std::move(tokens), new_tokens, /*streaming=*/true);
  request.setEndId(-1);
  return request;
}

double best(const std::vector<ChurnTimes>& runs, std::vector<double> ChurnTimes::* values, double percent) {
  std::optional<double> least;
  for (const ChurnTimes& run : runs) {
    std::vector<double> sorted = run.*values;
    if (sorted.empty()) continue;
    std::sort(sorted.begin(), sorted.end());
    const double value = percentileOf(sorted, percent);
    least = std::min(least.value_or(value), value);
  }
  return least.value_or(0);
}

}  // namespace

ChurnTimes runChurn(executor::Executor& executor, const AdapterChurn& work, const std::vector<IdType>& tasks,
                    size_t& next, std::mt19937& rng) {
  const auto meter = std::make_shared<Meter>();
  std::vector<IdType> streams;
  for (int i = 0; i < work.streams; ++i) {
    const int longest = executor.getMaxSeqLen() - work.stream_prompt;
    const auto last = std::make_shared<std::optional<Clock::time_point>>();
    meter->begun();
    streams.push_back(
        executor.enqueueRequest(randomRequest(executor, work.stream_prompt, longest, rng),
                                [meter, last](const executor::Response& r) { meter->onStream(r, *last); }));
  }
  meter->waitForTokens(int64_t{3} * work.streams);
  meter->measure(true);
  const auto begin = Clock::now();
  for (int i = 0; i * work.interval < work.duration; ++i) {
    std::this_thread::sleep_until(begin + i * work.interval);
    executor::Request request = randomRequest(executor, work.prompt, work.new_tokens, rng);
    request.setLoraConfig(executor::LoraConfig(tasks[next++ % tasks.size()]));
    const auto first = std::make_shared<bool>(true);
    meter->begun();
    executor.enqueueRequest(request, [meter, first, start = Clock::now()](const executor::Response& r) {
      meter->onAdapter(r, start, *first);
    });
  }
  std::this_thread::sleep_until(begin + work.duration);
  meter->measure(false);
  for (const IdType id : streams) executor.cancelRequest(id);
  return meter->finish();
}

ChurnResult bestOf(const std::vector<ChurnTimes>& warm, const std::vector<ChurnTimes>& cold) {
  return {.step = best(warm, &ChurnTimes::between, 50),
          .warm_between_p99 = best(warm, &ChurnTimes::between, 99),
          .cold_between_p99 = best(cold, &ChurnTimes::between, 99),
          .warm_first = best(warm, &ChurnTimes::first, 50),
          .cold_first = best(cold, &ChurnTimes::first, 50)};
}

}  // namespace chorus
