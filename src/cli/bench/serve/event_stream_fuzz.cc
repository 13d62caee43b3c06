// Any bytes can be recorded as a response. Whether they arrive at once or in pieces, events, figures and the collected
// answer are the same.
// parses: src/cli/bench/serve/sse_parser.cc src/cli/bench/serve/request_record.cc src/cli/bench/serve/answer_content.cc
#include <cstdint>
#include <cstdlib>

#include "cli/bench/serve/request_record.h"
#include "fuzz/fuzz_target.h"

namespace {

struct Recorded {
  chorus::RequestRecord record;
  std::string answer;
};

Recorded recorded(std::string_view bytes, size_t piece, int status, chorus::CallEnd end) {
  chorus::RequestRecord record;
  int ended = 0;
  double time = 0;
  chorus::AnswerContent content;
  chorus::StreamRecorder recorder(record, [&] { return time += 1; }, [&](const auto&) { ++ended; }, &content);
  recorder.onHead({.status = status, .headers = {{"retry-after", std::string(bytes.substr(0, 40))}}});
  for (size_t i = 0; i < bytes.size(); i += piece) recorder.onBody(bytes.substr(i, piece));
  recorder.onEnd(end, bytes.substr(0, 100));
  if (ended != 1 || (!record.error.empty() && record.complete())) std::abort();
  if (record.error_text.find('\n') != std::string::npos) std::abort();
  return {record, content.canonical()};
}

}  // namespace

// An empty input takes under 20 us; the rest allows for two formatted and thrown refusals and for other programs' use
// of the caches. The memory is that of the messages and of the first tables.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 16 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  if (size < 1) return;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = 1 + data[0] % 16;
  const int status = data[0] < 224 ? 200 : 429;
  const auto end = static_cast<chorus::CallEnd>(data[0] / 16 % 6);
  const auto [whole, whole_answer] = recorded(bytes, bytes.size() + 1, status, end);
  const auto [cut, cut_answer] = recorded(bytes, piece, status, end);
  if (whole.gaps.size() != cut.gaps.size() || whole.output_tokens != cut.output_tokens || whole.error != cut.error ||
      whole.error_text != cut.error_text || whole.prompt_tokens != cut.prompt_tokens || whole_answer != cut_answer) {
    std::abort();
  }
}
