// Restricts answers to two tokens by functions that change the logits: a named one, one of a single request, and one
// for all requests of a step.
//
//   logits_post_processor ENGINE_DIR ALLOWED_TOKEN OTHER_ALLOWED_TOKEN TOKEN...
#include <cstdlib>
#include <iostream>
#include <limits>

#include "chorus/executor.h"

namespace tle = chorus::executor;

namespace {

// Makes the allowed tokens alternate.
void allow(tle::Tensor& logits, tle::TokenIdType token, tle::StreamPtr const& stream) {
  auto cpu = tle::Tensor::cpu(logits.getDataType(), logits.getShape());
  auto* values = static_cast<float*>(cpu.getData());
  for (std::size_t i = 0; i < cpu.getSize(); ++i) values[i] = std::numeric_limits<float>::lowest();
  values[token] = 0.0f;
  logits.setFrom(cpu, stream);
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc < 5) {
    std::cerr << "usage: " << argv[0] << " ENGINE_DIR ALLOWED_TOKEN OTHER_ALLOWED_TOKEN TOKEN...\n";
    return 2;
  }
  tle::TokenIdType const allowed[] = {std::atoi(argv[2]), std::atoi(argv[3])};
  tle::VecTokens prompt;
  for (int i = 4; i < argc; ++i) prompt.push_back(std::atoi(argv[i]));

  auto const alternate = [&](tle::IdType, tle::Tensor& logits, tle::BeamTokens const& tokens,
                             tle::StreamPtr const& stream, std::optional<tle::IdType>) {
    allow(logits, allowed[(tokens.at(0).size() - prompt.size()) % 2], stream);
  };
  auto const batched = [&](std::vector<tle::IdType> const& ids, std::vector<tle::Tensor>& logits,
                           std::vector<std::reference_wrapper<tle::BeamTokens const>> const& tokens,
                           tle::StreamPtr const& stream, std::vector<std::optional<tle::IdType>> const& clients) {
    for (std::size_t i = 0; i < ids.size(); ++i) alternate(ids[i], logits[i], tokens[i], stream, clients[i]);
  };

  tle::LogitsPostProcessorConfig processors;
  processors.setProcessorMap(tle::LogitsPostProcessorMap{{"alternate", alternate}});
  processors.setProcessorBatched(batched);
  tle::ExecutorConfig config;
  config.setLogitsPostProcessorConfig(processors);
  tle::Executor executor(argv[1], tle::ModelType::kDECODER_ONLY, config);

  tle::OutputConfig output;
  output.excludeInputFromOutput = true;
  std::vector<tle::Request> requests(4, tle::Request(prompt, 6, false, tle::SamplingConfig(), output));
  requests[0].setLogitsPostProcessorName("alternate");
  requests[1].setLogitsPostProcessor(alternate);
  requests[2].setLogitsPostProcessorName(tle::Request::kBatchedPostProcessorName);
  // The fourth request has no processor.
  auto const ids = executor.enqueueRequests(requests);
  tle::VecTokens const wanted{allowed[0], allowed[1], allowed[0], allowed[1], allowed[0], allowed[1]};
  bool right = true;
  for (auto const& responses : executor.awaitResponses(ids)) {
    if (responses.at(0).hasError()) {
      std::cerr << responses.at(0).getErrorMsg() << "\n";
      return 1;
    }
    auto const& tokens = responses.at(0).getResult().outputTokenIds.at(0);
    for (auto const token : tokens) std::cout << token << " ";
    std::cout << "\n";
    right = right && ((tokens == wanted) == (responses.at(0).getRequestId() != ids.back()));
  }
  return right ? 0 : 1;
}
