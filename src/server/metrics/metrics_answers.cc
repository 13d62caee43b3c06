#include "server/metrics/metrics_answers.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace chorus::server {

MetricsAnswers::MetricsAnswers(std::shared_ptr<ServerMetrics> metrics)
    : metrics_(std::move(metrics)), worker_(WorkerOptions{.threads = 1, .niceness = 5}) {}

void MetricsAnswers::serve(std::shared_ptr<const ApiContext> context) {
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
}

void MetricsAnswers::answer(const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
  const std::lock_guard lock(mutex_);
  if (finished_) throw ApiError::unavailable("The server is shutting down.");
  waiting_.push_back({std::move(exchange), request.client, errorFormFor(request.path, request.id)});
  if (waiting_.size() > 1) return;  // a task is posted already
  try {
    worker_.post(0, 0, [this] { answerAll(); });
  } catch (...) {
    waiting_.clear();
    throw;
  }
}

void MetricsAnswers::answerAll() {
  using Clock = std::chrono::steady_clock;
  // Clients that ask all the time shall not keep this thread busy all the time.
  constexpr int kRest = 4;
  constexpr std::chrono::milliseconds kLongestRest{250};
  std::this_thread::sleep_until(rest_until_);
  std::vector<Waiting> waiting;
  std::shared_ptr<const ApiContext> context;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    context = context_;
  }
  const auto begin = Clock::now();
  const std::string text = metrics_->text(context.get());
  const auto end = Clock::now();
  rest_until_ = end + std::min<Clock::duration>(kRest * (end - begin), kLongestRest);
  for (Waiting& one : waiting) {
    try {
      ClientCharge memory(one.client);
      addCharge(memory, text.size());
      one.exchange->respond(
          {.content_type = std::string(kMetricsType), .body = text, .headers = {}, .memory = std::move(memory)});
    } catch (...) {
      one.exchange->respond(currentApiError().response(one.form));
    }
  }
}

void MetricsAnswers::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  worker_.finish();
  const std::lock_guard lock(mutex_);
  context_.reset();
}

}  // namespace chorus::server
