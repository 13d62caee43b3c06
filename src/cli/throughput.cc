#include "cli/throughput.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>

#include "base/error.h"
#include "engine/rank_group.h"

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;

// When tokens came: filled by the executor's callbacks, which share it, since after an error some are still to come.
class Progress {
 public:
  explicit Progress(int requests)
      : waiting_for_first_(requests), running_(requests), started_(static_cast<size_t>(requests), false) {}

  void onResponse(size_t request, const executor::Response& response) {
    const std::lock_guard lock(mutex_);
    if (response.hasError()) {
      error_ = response.getErrorMsg();
      running_ = 0;
      changed_.notify_one();
      return;
    }
    const executor::Result& result = response.getResult();
    const size_t tokens = result.outputTokenIds.empty() ? 0 : result.outputTokenIds[0].size();
    if (waiting_for_first_ == 0) late_tokens_ += tokens;
    if (!started_[request] && tokens > 0) {
      started_[request] = true;
      if (--waiting_for_first_ == 0) all_started_ = Clock::now();
    }
    if (result.isFinal && --running_ == 0) {
      end_ = Clock::now();
      changed_.notify_one();
    }
  }

  ThroughputResult wait(Clock::time_point start, const ThroughputWork& work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
    if (!error_.empty()) fail(ErrorCode::kInternal, "bench: {}", error_);
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    ThroughputResult result;
    result.context_tokens_per_s = work.batch * static_cast<double>(work.prompt) / seconds(all_started_ - start);
    if (late_tokens_ > 0) {
      result.generation_tokens_per_s = static_cast<double>(late_tokens_) / seconds(end_ - all_started_);
    }
    return result;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_for_first_;
  int running_;
  std::vector<bool> started_;
  size_t late_tokens_ = 0;
  Clock::time_point all_started_, end_;
  std::string error_;
};

ThroughputResult runOnce(executor::Executor& executor, const ThroughputWork& work, std::mt19937& rng) {
  std::uniform_int_distribution<int32_t> token(0, executor.getVocabSize() - 1);
  const auto progress = std::make_shared<Progress>(work.batch);
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
  const auto start = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    executor.enqueueRequest(requests[i],
                            [progress, i](const executor::Response& response) { progress->onResponse(i, response); });
  }
  return progress->wait(start, work);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
}  // namespace

ThroughputResult measureThroughput(executor::Executor& executor, const ThroughputWork& work, int warmup, int passes) {
  std::mt19937 rng(20240229);
  for (int i = 0; i < warmup; ++i) runOnce(executor, work, rng);
  std::vector<double> context, generation;
  for (int i = 0; i < passes; ++i) {
    const ThroughputResult result = runOnce(executor, work, rng);
    context.push_back(result.context_tokens_per_s);
    generation.push_back(result.generation_tokens_per_s);
  }
  return {median(context), median(generation)};
}

double stepBytes(const std::filesystem::path& engine_dir, const ThroughputWork& work,
                 const std::vector<size_t>& adapter_bytes) {
  const auto engines = RankGroup::loadEngines(engine_dir);
  double bytes = 0;
  for (const auto& engine : engines) bytes += static_cast<double>(engine->stepBytes());
  const int used = std::min(work.adapters, work.batch);
  for (int i = 0; i < used; ++i) bytes += static_cast<double>(adapter_bytes[static_cast<size_t>(i)]);
  const auto kv_per_token = static_cast<double>(Session::kvBlockBytes(engines.front()->config(), 1));
  return bytes + work.batch * (work.prompt + work.new_tokens / 2.0) * kv_per_token;
}

}  // namespace chorus
