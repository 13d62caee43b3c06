// Records what happens to one request of the load while its response streams in.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/serve/http_client.h"
#include "cli/bench/serve/sse_parser.h"

namespace chorus {

using LoadClock = std::chrono::steady_clock;

// Times are in seconds since the start of the load; -1: did not happen.
struct RequestRecord {
  static constexpr std::string_view kUnfinished = "unfinished";

  size_t model = 0;
  int prompt_tokens = 0;
  double planned = 0;
  double sent = 0;    // when the generator started to send it
  double first = -1;  // the first piece of text
  double last = -1;
  double end = -1;           // when the response ended or failed
  std::vector<double> gaps;  // seconds between pieces of text
  int output_tokens = 0;     // the server's count, or the number of pieces of text if it sends none
  std::string error;         // kind of error; empty: complete response
  std::string error_text;    // the error message, one line

  bool complete() const { return end >= 0 && error.empty(); }
  bool unfinished() const { return error == kUnfinished; }
  double timeToFirst() const { return first - planned; }
  double latency() const { return end - planned; }
  // Seconds per token after the first; 0 with fewer than two.
  double timePerToken() const { return output_tokens > 1 && last > first ? (last - first) / (output_tokens - 1) : 0; }
};

// Reads an OpenAI response stream of completions or chat completions.
class StreamRecorder : public CallHandler {
 public:
  // `now` returns the seconds since the load's start. `record` is filled until `done` is called, which follows onEnd.
  StreamRecorder(RequestRecord& record, std::function<double()> now, std::function<void()> done);
  void onStatus(int status) override { status_ = status; }
  void onBody(std::string_view bytes) override;
  void onEnd(CallEnd end, std::string_view reason) override;

 private:
  void onEvent(std::string_view data);
  void onError(std::string kind, std::string text);

  RequestRecord& record_;
  std::function<double()> now_;
  std::function<void()> done_;
  SseParser parser_;
  int status_ = 0;
  int pieces_ = 0, counted_ = -1;
  bool finished_ = false;  // [DONE] was received
  std::string refusal_;    // body of a response that is not a stream
  double time_ = 0;        // arrival time of the bytes being parsed
};

}  // namespace chorus
