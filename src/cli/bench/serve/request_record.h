// Records what happens to one request of the load while its response streams in. After a refusal a request may be tried
// again, and its record goes on.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/serve/answer_content.h"
#include "cli/bench/serve/http_client.h"
#include "cli/bench/serve/sse_parser.h"

namespace chorus {

using LoadClock = std::chrono::steady_clock;

// The result of a comparison with the answer to the same request when it was alone.
enum class Comparison {
  kNone,  // not compared
  kEqual,
  kDifferent,
  kUnknownContent,  // the answer names weights that no earlier answer to this request named
};

// Times are in seconds since the start of the load; -1: did not happen.
struct RequestRecord {
  static constexpr std::string_view kUnfinished = "unfinished";

  size_t model = 0;
  int prompt_tokens = 0;
  double planned = 0;
  double sent = 0;    // when the generator started to send it
  double tried = 0;   // when its last try began
  double first = -1;  // the first piece of text
  double last = -1;
  double end = -1;           // when the response ended or failed
  std::vector<double> gaps;  // seconds between pieces of text
  int output_tokens = 0;     // the server's count, or the number of pieces of text if it sends none
  std::string error;         // kind of error; empty: complete response
  std::string error_text;    // the error message, one line
  int64_t refused_429 = 0;   // tries that were answered with status 429
  int64_t retries = 0;       // tries after the first
  Comparison comparison = Comparison::kNone;

  bool complete() const { return end >= 0 && error.empty(); }
  bool unfinished() const { return error == kUnfinished; }
  // The answer came after at least one refusal.
  bool recovered() const { return complete() && retries > 0; }
  double timeToFirst() const { return first - planned; }
  double timeToFirstOfLastTry() const { return first - tried; }
  double latency() const { return end - planned; }
  // Seconds per token after the first; 0 with fewer than two.
  double timePerToken() const { return output_tokens > 1 && last > first ? (last - first) / (output_tokens - 1) : 0; }
};

// Reads an OpenAI response stream of completions or chat completions.
class StreamRecorder : public CallHandler {
 public:
  struct Ended {
    int status = 0;  // of a response that arrived in full; 0: none did
    std::optional<std::chrono::milliseconds> retry_after;
  };
  // `now` returns the seconds since the load's start. `record` is filled until `done` is called, which follows onEnd.
  // content: also collects the answer; may be null.
  StreamRecorder(RequestRecord& record, std::function<double()> now, std::function<void(const Ended&)> done,
                 AnswerContent* content = nullptr);
  void onHead(const ResponseHead& head) override;
  void onBody(std::string_view bytes) override;
  void onEnd(CallEnd end, std::string_view reason) override;

 private:
  void onEvent(std::string_view data);
  void onError(std::string kind, std::string text);

  RequestRecord& record_;
  std::function<double()> now_;
  std::function<void(const Ended&)> done_;
  AnswerContent* content_;
  SseParser parser_;
  int status_ = 0;
  std::optional<std::chrono::milliseconds> retry_after_;
  int pieces_ = 0, counted_ = -1;
  bool finished_ = false;  // [DONE] was received
  std::string refusal_;    // body of a response that is not a stream
  double time_ = 0;        // arrival time of the bytes being parsed
};

}  // namespace chorus
