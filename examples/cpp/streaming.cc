// Sends several prompts at once, prints each answer as it grows, and the times of steps and requests.
//
//   streaming ENGINE_DIR TOKEN...        prompts: the tokens, and the tokens without the first, and so on
#include <cstdlib>
#include <iostream>
#include <map>

#include "chorus/executor.h"

namespace tle = chorus::executor;

int main(int argc, char* argv[]) {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " ENGINE_DIR TOKEN...\n";
    return 2;
  }
  tle::VecTokens prompt;
  for (int i = 2; i < argc; ++i) prompt.push_back(std::atoi(argv[i]));

  tle::ExecutorConfig config;
  config.setSchedulerConfig(tle::SchedulerConfig(tle::CapacitySchedulerPolicy::kMAX_UTILIZATION));
  config.setKvCacheConfig(tle::KvCacheConfig(/*enableBlockReuse=*/true));
  config.setRequestStatsMaxIterations(1000);
  tle::Executor executor(argv[1], tle::ModelType::kDECODER_ONLY, config);

  tle::OutputConfig output;
  output.returnLogProbs = true;
  output.returnPerfMetrics = true;
  tle::SamplingConfig sampling;
  sampling.setTopK(4);
  sampling.setTemperature(0.7f);
  sampling.setSeed(17);
  std::vector<tle::Request> requests;
  for (std::size_t first = 0; first < prompt.size() && first < 4; ++first) {
    tle::VecTokens tokens(prompt.begin() + static_cast<std::ptrdiff_t>(first), prompt.end());
    tle::Request request(tokens, /*maxTokens=*/12, /*streaming=*/true, sampling, output);
    request.setClientId(100 + first);
    requests.push_back(std::move(request));
  }
  auto const ids = executor.enqueueRequests(requests);

  std::map<tle::IdType, tle::VecTokens> answers;
  std::size_t unfinished = ids.size();
  while (unfinished > 0) {
    for (auto const& response : executor.awaitResponses(std::chrono::milliseconds(500))) {
      if (response.hasError()) {
        std::cerr << response.getErrorMsg() << "\n";
        return 1;
      }
      auto const& result = response.getResult();
      auto const& tokens = result.outputTokenIds.at(0);  // only the new ones
      if (tokens.size() != result.logProbs.value().at(0).size()) return 1;
      auto& answer = answers[response.getRequestId()];
      answer.insert(answer.end(), tokens.begin(), tokens.end());
      std::cout << "client " << response.getClientId().value() << ":";
      for (auto const token : tokens) std::cout << " " << token;
      if (result.isFinal) {
        --unfinished;
        auto const timing = result.requestPerfMetrics.value().timingMetrics;
        std::cout << "  (" << answer.size() << " tokens, finish reason " << static_cast<int>(result.finishReasons.at(0))
                  << ", "
                  << std::chrono::duration<double, std::milli>(timing.lastTokenTime - timing.arrivalTime).count()
                  << " ms)";
      }
      std::cout << "\n";
    }
  }
  executor.shutdown();
  for (auto const& stats : executor.getLatestIterationStats()) {
    std::cout << "step " << stats.iter << ": " << stats.inflightBatchingStats.value().numScheduledRequests
              << " requests, " << stats.inflightBatchingStats.value().numCtxTokens << " tokens of contexts, "
              << stats.iterLatencyMS << " ms\n";
  }
  auto const requestStats = executor.getLatestRequestStats();
  if (requestStats.empty()) return 1;
  std::cout << tle::JsonSerialization::toJsonStr(requestStats.back()) << "\n";
}
