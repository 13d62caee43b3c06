// One request of the load with all its tries.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>

#include "cli/bench/serve/answer_content.h"
#include "cli/bench/serve/http_client.h"
#include "cli/bench/serve/request_record.h"

namespace chorus {

class LoadRequest : public std::enable_shared_from_this<LoadRequest> {
 public:
  struct Options {
    HttpHeaders headers;
    int64_t retries = 0;           // tries after refusals with status 429 or 503
    bool collect_content = false;  // of the answer
    std::function<double()> now;   // seconds since the load's start
  };
  // Called on the client's thread after the last try. The content is that of a complete answer, or else null.
  using Done = std::function<void(const AnswerContent* content)>;

  // `options` and `record` must outlive the request. seed: of the waits between tries.
  LoadRequest(HttpClient& client, const Options& options, std::string body, uint64_t seed, RequestRecord& record,
              Done done);
  // Sends the first try and returns. Sets record.sent.
  void start();

 private:
  void send(std::chrono::milliseconds delay);
  void onTryEnd(const StreamRecorder::Ended& ended);

  HttpClient& client_;
  const Options& options_;
  std::string body_;
  std::mt19937_64 random_;
  RequestRecord& record_;
  Done done_;
  AnswerContent content_;
};

}  // namespace chorus
