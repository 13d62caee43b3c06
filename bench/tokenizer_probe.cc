// Runs tokenizers for scripts.
//
//   chorus_tokenizer_probe speed DIRECTORY TEXT_FILE
//     measures the bytes per second of encoding the text, one mebibyte of spaces, and one of a letter, on one thread.
//   chorus_tokenizer_probe lines
//     answers each line of standard input, a JSON object, with one line: "load" (a directory) or "document" (a
//     tokenizer.json) chooses the tokenizer; "encode" (a text) gives {"ids", "special"}, without and with the special
//     tokens around the text; "decode" (ids) gives {"text", "skipped", "streamed"}: with special tokens, without them,
//     and token by token with them. A refusal gives {"error"}.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;

// The best of several runs, as other work on the machine only slows a run down.
double nanosecondsPerByte(const Tokenizer& tokenizer, const std::string& text, size_t& tokens) {
  constexpr double kSeconds = 2;
  double best = 0, total = 0;
  for (int run = 0; run < 3 || total < kSeconds; ++run) {
    const auto begun = Clock::now();
    tokens = tokenizer.encode(text, false).size();
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    const double cost = seconds * 1e9 / static_cast<double>(text.size());
    best = run == 0 ? cost : std::min(best, cost);
    total += seconds;
  }
  return best;
}

void measure(const std::string& directory, const std::string& file) {
  constexpr size_t kRun = size_t{1} << 20;
  const auto tokenizer = Tokenizer::load(directory);
  for (const auto& [what, text] : {std::pair<const char*, std::string>{"text", readFile(file, size_t{64} << 20)},
                                   {"spaces", std::string(kRun, ' ')},
                                   {"one letter", std::string(kRun, 'a')}}) {
    size_t tokens = 0;
    const auto begun = Clock::now();
    tokenizer->encode(text, false);
    const double first =
        std::chrono::duration<double>(Clock::now() - begun).count() * 1e9 / static_cast<double>(text.size());
    const double cost = nanosecondsPerByte(*tokenizer, text, tokens);
    std::printf("%-11s %9zu bytes, %8zu tokens: %6.1f ns a byte (first run %.1f), %6.1f MB/s\n", what, text.size(),
                tokens, cost, first, 1e3 / cost);
  }
}

Json answer(const Json& line, std::shared_ptr<const Tokenizer>& tokenizer) {
  if (line.contains("load")) {
    tokenizer = Tokenizer::load(line["load"].get<std::string>());
    return {{"size", tokenizer->vocabSize()}};
  }
  if (line.contains("document")) {
    tokenizer = Tokenizer::fromJson(line["document"], Json(), "document");
    return {{"size", tokenizer->vocabSize()}};
  }
  if (tokenizer == nullptr) fail(ErrorCode::kInvalidArgument, "no tokenizer is loaded");
  if (line.contains("encode")) {
    const auto text = line["encode"].get<std::string>();
    return {{"ids", tokenizer->encode(text, false)}, {"special", tokenizer->encode(text, true)}};
  }
  const auto ids = line.at("decode").get<std::vector<int32_t>>();
  IncrementalDetokenizer detokenizer(tokenizer, false);
  std::string streamed;
  for (const int32_t id : ids) streamed += detokenizer.feed(id);
  streamed += detokenizer.flush();
  return {{"text", tokenizer->decode(ids, false)}, {"skipped", tokenizer->decode(ids, true)}, {"streamed", streamed}};
}

void answerLines() {
  std::shared_ptr<const Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    Json reply;
    try {
      reply = answer(parseJson(line, "standard input"), tokenizer);
    } catch (const Error& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
}

}  // namespace
}  // namespace chorus

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "speed" && argc == 4) return chorus::measure(argv[2], argv[3]), 0;
    if (mode == "lines" && argc == 2) return chorus::answerLines(), 0;
  } catch (const chorus::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: chorus_tokenizer_probe speed DIRECTORY TEXT_FILE | lines\n");
  return 2;
}
