#include "executor_runs.h"

#include <span>
#include <stdexcept>

#include "base/sha256.h"

namespace chorus::test {
namespace {
constexpr std::chrono::milliseconds kPatience{60000};

std::span<const std::byte> bytesOf(const executor::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.getData()), tensor.getSizeInBytes()};
}
}  // namespace

executor::Request greedyRequest(const std::vector<int32_t>& prompt, int32_t new_tokens, std::optional<size_t> adapter) {
  executor::OutputConfig output;
  output.returnContextLogits = true;
  output.returnGenerationLogits = true;
  output.excludeInputFromOutput = true;
  executor::Request request(prompt, new_tokens, false, executor::SamplingConfig(), output);
  if (adapter) request.setLoraConfig(executor::LoraConfig(*adapter + 1));
  return request;
}

executor::Request withoutContextLogits(executor::Request request) {
  executor::OutputConfig output = request.getOutputConfig();
  output.returnContextLogits = false;
  request.setOutputConfig(output);
  return request;
}

std::vector<executor::Request> goldenRequests(const GoldenCase& golden) {
  std::vector<executor::Request> requests;
  for (const GoldenRow& row : golden.rows) {
    requests.push_back(greedyRequest(row.prompt, static_cast<int32_t>(row.tokens.size()), row.adapter));
  }
  return requests;
}

std::unique_ptr<executor::Executor> openExecutor(const std::filesystem::path& engine_dir,
                                                 const executor::ExecutorConfig& config,
                                                 const std::vector<std::filesystem::path>& adapters) {
  auto executor = std::make_unique<executor::Executor>(engine_dir, executor::ModelType::kDECODER_ONLY, config);
  for (size_t i = 0; i < adapters.size(); ++i) executor->registerAdapter(i + 1, adapters[i]);
  return executor;
}

void loadAdapters(executor::Executor& executor, size_t adapters) {
  for (size_t i = 0; i < adapters; ++i) runAlone(executor, {greedyRequest({0}, 1, i)});
}

std::vector<std::filesystem::path> adapterDirectories(const GoldenCase& golden) {
  std::vector<std::filesystem::path> directories;
  for (size_t i = 0; i < golden.adapters.size(); ++i) directories.push_back(golden.adapterDirectory(i));
  return directories;
}

RunAnswer awaitAnswer(executor::Executor& executor, executor::IdType id, size_t prompt_length) {
  for (;;) {
    const auto responses = executor.awaitResponses(id, kPatience);
    if (responses.empty()) throw std::runtime_error("request " + std::to_string(id) + " got no answer in a minute");
    for (const executor::Response& response : responses) {
      if (response.hasError()) throw std::runtime_error(response.getErrorMsg());
      const executor::Result& result = response.getResult();
      if (!result.isFinal) continue;
      RunAnswer answer{.tokens = result.outputTokenIds.at(0)};
      const auto& context = result.contextLogits;
      answer.cached_tokens = result.cachedTokens;
      if (!result.generationLogits) return answer;
      const auto& generation = *result.generationLogits;
      if ((context && context->getShape().at(0) != static_cast<int64_t>(prompt_length)) ||
          generation.getShape().at(1) != static_cast<int64_t>(answer.tokens.size())) {
        throw std::runtime_error("request " + std::to_string(id) + ": logits do not cover every position");
      }
      const float* logits = static_cast<const float*>(generation.getData());
      answer.generation_logits.assign(logits, logits + generation.getSize());
      Sha256 generated;
      generated.update(bytesOf(generation));
      answer.generation_hash = generated.hex();
      if (!context) return answer;
      Sha256 all;
      all.update(bytesOf(*context));
      all.update(bytesOf(generation));
      answer.logits_hash = all.hex();
      return answer;
    }
  }
}

void awaitEnd(executor::Executor& executor, executor::IdType id) {
  for (;;) {
    const auto responses = executor.awaitResponses(id, kPatience);
    if (responses.empty()) throw std::runtime_error("request " + std::to_string(id) + " got no answer in a minute");
    if (responses.back().hasError()) throw std::runtime_error(responses.back().getErrorMsg());
    if (responses.back().getResult().isFinal) return;
  }
}

std::string hashOfAll(const std::vector<RunAnswer>& answers) {
  Sha256 hash;
  for (const RunAnswer& answer : answers) hash.update(std::as_bytes(std::span(answer.logits_hash)));
  return hash.hex();
}

std::vector<RunAnswer> runTogether(executor::Executor& executor, const std::vector<executor::Request>& requests) {
  const std::vector<executor::IdType> ids = executor.enqueueRequests(requests);
  std::vector<RunAnswer> answers;
  for (size_t i = 0; i < ids.size(); ++i) {
    answers.push_back(awaitAnswer(executor, ids[i], requests[i].getInputTokenIds().size()));
  }
  return answers;
}

std::vector<RunAnswer> runAlone(executor::Executor& executor, const std::vector<executor::Request>& requests) {
  std::vector<RunAnswer> answers;
  for (const executor::Request& request : requests) {
    answers.push_back(awaitAnswer(executor, executor.enqueueRequest(request), request.getInputTokenIds().size()));
  }
  return answers;
}

}  // namespace chorus::test
