// Cancels one long answer while another one runs to its end.
//
//   cancel ENGINE_DIR TOKEN...
#include <cstdlib>
#include <iostream>

#include "chorus/executor.h"

namespace tle = chorus::executor;

int main(int argc, char* argv[]) {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " ENGINE_DIR TOKEN...\n";
    return 2;
  }
  tle::VecTokens prompt;
  for (int i = 2; i < argc; ++i) prompt.push_back(std::atoi(argv[i]));
  tle::Executor executor(argv[1], tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig());

  // Without an end token the request continues to maxTokens.
  auto const cancelled = executor.enqueueRequest(tle::Request(prompt, 100000, /*streaming=*/true));
  auto const other = executor.enqueueRequest(tle::Request(prompt, 8));
  std::size_t tokens = 0;
  bool asked = false;
  auto reason = tle::FinishReason::kNOT_FINISHED;
  while (reason == tle::FinishReason::kNOT_FINISHED) {
    for (auto const& response : executor.awaitResponses(cancelled)) {
      auto const& result = response.getResult();
      tokens += result.outputTokenIds.at(0).size();
      reason = result.finishReasons.at(0);
      if (tokens >= 3 && !asked) {
        executor.cancelRequest(cancelled);
        asked = true;
      }
    }
  }
  std::cout << "ended after " << tokens << " tokens, finish reason " << static_cast<int>(reason) << "\n";
  auto const result = executor.awaitResponses(other).at(0).getResult();
  std::cout << "the other one has " << result.outputTokenIds.at(0).size() - prompt.size() << " tokens\n";
  // A request is forgotten after its last response was returned.
  std::cout << executor.awaitResponses(cancelled).at(0).getErrorMsg() << "\n";
  return reason == tle::FinishReason::kCANCELLED ? 0 : 1;
}
