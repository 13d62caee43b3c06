// What one request of the load showed, taken down while its answer streams in.
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

// Times in seconds since the start of the load; -1: did not happen.
struct RequestRecord {
  static constexpr std::string_view kUnfinished = "unfinished";

  size_t model = 0;
  int prompt_tokens = 0;
  double planned = 0;
  double sent = 0;    // when the generator came to it
  double first = -1;  // the first piece of text
  double last = -1;
  double end = -1;           // of the answer or the failure
  std::vector<double> gaps;  // between pieces of text
  int output_tokens = 0;     // as the server counts them; pieces of text where it does not
  std::string error;         // kind; empty: answered in full
  std::string error_text;    // what was said, one line

  bool complete() const { return end >= 0 && error.empty(); }
  bool unfinished() const { return error == kUnfinished; }
  double timeToFirst() const { return first - planned; }
  double latency() const { return end - planned; }
  // Seconds per token after the first; 0 with fewer than two.
  double timePerToken() const { return output_tokens > 1 && last > first ? (last - first) / (output_tokens - 1) : 0; }
};

// Reads an OpenAI stream of completions or chat completions.
class StreamRecorder : public CallHandler {
 public:
  // now: seconds since the load's start. record: filled until done is called, which is after onEnd.
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
  bool finished_ = false;  // [DONE] came
  std::string refusal_;    // body of an answer that is no stream
  double time_ = 0;        // of the bytes in hand
};

}  // namespace chorus
