// Sends one prompt and prints the answer.
//
//   basic ENGINE_DIR TOKEN...
//
// Like all programs here it is written for TensorRT-LLM's executor: it compiles there after including its header and
// using the namespace tensorrt_llm::executor.
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

  tle::SizeType32 const beamWidth = 1;
  auto executor = tle::Executor(argv[1], tle::ModelType::kDECODER_ONLY, tle::ExecutorConfig(beamWidth));

  tle::SizeType32 const maxTokens = 16;
  auto request = tle::Request(prompt, maxTokens);
  auto const requestId = executor.enqueueRequest(request);
  auto const responses = executor.awaitResponses(requestId);
  if (responses.at(0).hasError()) {
    std::cerr << responses.at(0).getErrorMsg() << "\n";
    return 1;
  }
  // outputTokenIds contains the prompt and the answer, unless OutputConfig excludes the prompt.
  for (auto const token : responses.at(0).getResult().outputTokenIds.at(beamWidth - 1)) std::cout << token << " ";
  std::cout << "\n";
}
