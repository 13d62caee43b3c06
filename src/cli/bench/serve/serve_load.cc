#include "cli/bench/serve/serve_load.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/progress.h"
#include "cli/bench/serve/load_request.h"
#include "cli/bench/serve/solo_answers.h"

namespace chorus {
namespace {

using std::chrono::milliseconds;

Json bodyOf(const PlannedRequest& request, const ServeLoad& load) {
  Json body = {{"model", load.models[request.model]},
               {"prompt", request.prompt},
               {"max_tokens", request.output_tokens},
               {"temperature", load.temperature},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  body.update(load.extra_body);
  return body;
}

std::string textOf(const Json& body) { return body.dump(-1, ' ', true, Json::error_handler_t::replace); }

// Counts the running requests.
class Outstanding {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    --count_;
    fewer_.notify_all();
  }
  // Waits until at most `most` requests run. Returns true when the stop event came first.
  bool waitFor(int64_t most, const StopEvent& stop) {
    while (!waitFor(most, milliseconds(50))) {
      if (stop(milliseconds(0))) return true;
    }
    return false;
  }

 private:
  bool waitFor(int64_t most, milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return fewer_.wait_for(lock, timeout, [this, most] { return count_ <= most; });
  }

  std::mutex mutex_;
  std::condition_variable fewer_;
  int64_t count_ = 0;
};

// Returns true when the stop event came before `time`.
bool waitUntil(LoadClock::time_point time, const StopEvent& stop) {
  while (true) {
    const auto left = time - LoadClock::now();
    if (left < milliseconds(2)) {
      std::this_thread::sleep_until(time);
      return stop(milliseconds(0));
    }
    if (stop(std::chrono::floor<milliseconds>(left) - milliseconds(1))) return true;
  }
}

// Runs a load once.
class LoadRun {
 public:
  LoadRun(HttpClient& client, const ServeLoad& load, const StopEvent& stop)
      : client_(client), load_(load), stop_(stop), plan_(load.plan) {
    options_.headers = load.headers;
    options_.headers.emplace_back("content-type", "application/json");
    options_.retries = load.retries;
    options_.collect_content = load.verify;
    options_.now = [this] { return std::chrono::duration<double>(LoadClock::now() - start_).count(); };
  }

  LoadResult run() {
    LoadResult result{.streams = load_.streams, .verify = load_.verify};
    result.stopped = (load_.verify && !learnSoloAnswers()) || !sendAll();
    client_.stop();
    result.records.assign(std::make_move_iterator(records_.begin()), std::make_move_iterator(records_.end()));
    for (const RequestRecord& record : result.records) result.seconds = std::max(result.seconds, record.end);
    result.first_difference = first_difference_;
    return result;
  }

 private:
  // Both return false when the stop event came.
  bool learnSoloAnswers();
  bool sendAll();

  std::optional<PlannedRequest> nextRequest() {
    return load_.streams > 0 ? plan_.nextAt(options_.now()) : plan_.next();
  }
  bool waitForStream();
  bool waitForTurn(const PlannedRequest& request);
  void send(const PlannedRequest& request, std::string body);
  void compare(const PlannedRequest& request, const AnswerContent& answer, RequestRecord& record);

  HttpClient& client_;
  const ServeLoad& load_;
  const StopEvent& stop_;
  RequestPlan plan_;
  LoadRequest::Options options_;
  LoadClock::time_point start_ = LoadClock::now();
  std::deque<RequestRecord> records_;  // a deque, because requests keep references
  Outstanding outstanding_;
  SoloAnswers solo_;  // used by the client's thread while requests run
  std::atomic<int> failures_in_a_row_{0};
  std::string first_difference_;
};

bool LoadRun::learnSoloAnswers() {
  const size_t prompts = static_cast<size_t>(load_.plan.pool);
  Progress progress("asking each prompt alone", load_.models.size() * prompts, Progress::Unit::kItems);
  // A salt of its own for each request: its answer takes nothing from a cache of prefixes. A server that refuses the
  // field gets none.
  bool salted = true;
  for (size_t i = 0; i < load_.models.size() * prompts;) {
    const PlannedRequest request = plan_.pooled(i / prompts, static_cast<int>(i % prompts));
    Json body = bodyOf(request, load_);
    if (salted) body["cache_salt"] = fmt::format("solo {} {}", load_.plan.seed, i);
    RequestRecord record;
    outstanding_.begin();
    std::make_shared<LoadRequest>(client_, options_, textOf(body), i, record, [&](const AnswerContent* content) {
      if (content != nullptr) solo_.learn(request.model, request.pool_index, *content);
      outstanding_.end();
    })->start();
    if (outstanding_.waitFor(0, stop_)) {
      client_.stop();  // ends the request, which refers to this function's variables
      return false;
    }
    if (!record.complete()) {
      if (salted && record.error == "status 400") {
        salted = false;
        continue;
      }
      fail(ErrorCode::kConflict, "--verify: {} did not answer prompt {} alone: {}: {}", load_.models[request.model],
           request.pool_index, record.error, record.error_text);
    }
    progress.add(1);
    ++i;
  }
  return true;
}

// Returns false when the stop event came.
bool LoadRun::waitForTurn(const PlannedRequest& request) {
  const auto time =
      start_ + std::chrono::duration_cast<LoadClock::duration>(std::chrono::duration<double>(request.time));
  return !waitUntil(time, stop_);
}

void LoadRun::compare(const PlannedRequest& request, const AnswerContent& answer, RequestRecord& record) {
  record.comparison = solo_.compare(request.model, request.pool_index, answer);
  if (record.comparison == Comparison::kDifferent && first_difference_.empty()) {
    first_difference_ = fmt::format("{}, {}", load_.models[request.model], solo_.firstDifference());
  }
}

void LoadRun::send(const PlannedRequest& request, std::string body) {
  const uint64_t number = records_.size();
  RequestRecord& record = records_.emplace_back();
  record.model = request.model;
  record.prompt_tokens = static_cast<int>(request.prompt.size());
  record.planned = request.time;
  outstanding_.begin();
  std::make_shared<LoadRequest>(client_, options_, std::move(body), load_.plan.seed + number, record,
                                [this, request, &record](const AnswerContent* content) {
                                  if (content != nullptr) compare(request, *content, record);
                                  failures_in_a_row_ = record.complete() ? 0 : failures_in_a_row_ + 1;
                                  outstanding_.end();
                                })
      ->start();
}

// Waits until a closed loop may send another request. Returns false when the stop event came.
bool LoadRun::waitForStream() {
  if (outstanding_.waitFor(load_.streams - 1, stop_)) return false;
  // When all streams fail, the server may be gone: a loop that failures alone drive would send without end.
  return failures_in_a_row_ < load_.streams || !waitUntil(LoadClock::now() + milliseconds(100), stop_);
}

bool LoadRun::sendAll() {
  start_ = LoadClock::now();
  while (true) {
    if (load_.streams > 0 && !waitForStream()) return false;
    const auto request = nextRequest();
    if (!request) break;
    std::string body = textOf(bodyOf(*request, load_));
    if (!waitForTurn(*request)) return false;
    send(*request, std::move(body));
  }
  return !outstanding_.waitFor(0, stop_);
}

}  // namespace

LoadResult runServeLoad(HttpClient& client, const ServeLoad& load, const StopEvent& stop) {
  return LoadRun(client, load, stop).run();
}

std::vector<std::string> servedModels(HttpClient& client, const HttpHeaders& headers) {
  constexpr const char* kPath = "/v1/models";
  const Json list = parseJson(fetchBody(client, kPath, headers), kPath);
  std::vector<std::string> names;
  if (list.is_object() && list.contains("data") && list["data"].is_array()) {
    for (const Json& model : list["data"]) {
      if (model.is_object() && model.contains("id") && model["id"].is_string()) names.push_back(model["id"]);
    }
  }
  if (names.empty()) fail(ErrorCode::kNotFound, "--url: {} lists no model", kPath);
  return names;
}

}  // namespace chorus
