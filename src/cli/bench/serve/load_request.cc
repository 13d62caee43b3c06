#include "cli/bench/serve/load_request.h"

#include "cli/bench/serve/arrivals.h"
#include "cli/bench/serve/retry_after.h"

namespace chorus {

using std::chrono::milliseconds;

LoadRequest::LoadRequest(HttpClient& client, const Options& options, std::string body, uint64_t seed,
                         RequestRecord& record, Done done)
    : client_(client),
      options_(options),
      body_(std::move(body)),
      random_(seed),
      record_(record),
      done_(std::move(done)) {}

void LoadRequest::start() {
  record_.sent = record_.tried = options_.now();
  send(milliseconds(0));
}

void LoadRequest::send(milliseconds delay) {
  auto recorder = std::make_shared<StreamRecorder>(
      record_, options_.now, [self = shared_from_this()](const StreamRecorder::Ended& ended) { self->onTryEnd(ended); },
      options_.collect_content ? &content_ : nullptr);
  client_.send("POST", "/v1/completions", options_.headers, body_, std::move(recorder), delay);
}

void LoadRequest::onTryEnd(const StreamRecorder::Ended& ended) {
  if (ended.status == 429) ++record_.refused_429;
  if ((ended.status != 429 && ended.status != 503) || record_.retries >= options_.retries) {
    done_(options_.collect_content && record_.complete() ? &content_ : nullptr);
    return;
  }
  const milliseconds wait = retryWait(ended.retry_after, record_.retries, unitRandom(random_));
  ++record_.retries;
  record_.error.clear();
  record_.error_text.clear();
  record_.tried = record_.end + std::chrono::duration<double>(wait).count();
  record_.end = -1;
  send(wait);
}

}  // namespace chorus
