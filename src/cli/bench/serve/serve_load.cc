#include "cli/bench/serve/serve_load.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/json.h"

namespace chorus {
namespace {

using std::chrono::milliseconds;

std::string bodyOf(const PlannedRequest& request, const ServeLoad& load) {
  const Json body = {{"model", load.models[request.model]},
                     {"prompt", request.prompt},
                     {"max_tokens", request.output_tokens},
                     {"temperature", load.temperature},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  return body.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Counts the running requests.
class Outstanding {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  bool waitForNone(milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, timeout, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
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

}  // namespace

LoadResult runServeLoad(HttpClient& client, const ServeLoad& load, const StopEvent& stop) {
  HttpClient::Headers headers = load.headers;
  headers.emplace_back("content-type", "application/json");
  RequestPlan plan(load.plan);
  std::deque<RequestRecord> records;  // a deque, because recorders keep references
  Outstanding outstanding;
  const auto start = LoadClock::now();
  const auto now = [start] { return std::chrono::duration<double>(LoadClock::now() - start).count(); };
  LoadResult result;
  while (auto request = plan.next()) {
    const std::string body = bodyOf(*request, load);
    const auto time =
        start + std::chrono::duration_cast<LoadClock::duration>(std::chrono::duration<double>(request->time));
    if (waitUntil(time, stop)) {
      result.stopped = true;
      break;
    }
    RequestRecord& record = records.emplace_back();
    record.model = request->model;
    record.prompt_tokens = static_cast<int>(request->prompt.size());
    record.planned = request->time;
    record.sent = now();
    outstanding.begin();
    client.send("POST", "/v1/completions", headers, body,
                std::make_shared<StreamRecorder>(record, now, [&outstanding] { outstanding.end(); }));
  }
  while (!result.stopped && !outstanding.waitForNone(milliseconds(50))) result.stopped = stop(milliseconds(0));
  client.stop();
  result.records.assign(std::make_move_iterator(records.begin()), std::make_move_iterator(records.end()));
  for (const RequestRecord& record : result.records) result.seconds = std::max(result.seconds, record.end);
  return result;
}

std::vector<std::string> servedModels(HttpClient& client, const HttpClient::Headers& headers) {
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
