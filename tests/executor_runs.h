// Runs requests through the Executor and keeps what a test compares: tokens, logits and their hash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chorus/executor.h"
#include "golden_case.h"

namespace chorus::test {

struct RunAnswer {
  std::vector<int32_t> tokens;           // generated
  std::vector<float> generation_logits;  // [tokens, vocab]
  std::string logits_hash;               // SHA-256 of context logits, then generation logits
};

// A greedy request for `new_tokens` tokens whatever they are, with all its logits. Adapters carry their index plus
// one as task id.
executor::Request greedyRequest(const std::vector<int32_t>& prompt, int32_t new_tokens, std::optional<size_t> adapter);
// One request a row of the golden.
std::vector<executor::Request> goldenRequests(const GoldenCase& golden);
// An executor over the engine, its adapters registered.
std::unique_ptr<executor::Executor> openExecutor(const std::filesystem::path& engine_dir,
                                                 const executor::ExecutorConfig& config,
                                                 const std::vector<std::filesystem::path>& adapters);
// Has every adapter loaded by a request of one token, so that later requests need not wait for it and share steps.
void loadAdapters(executor::Executor& executor, size_t adapters);
// The golden's adapter directories.
std::vector<std::filesystem::path> adapterDirectories(const GoldenCase& golden);

// Waits for the answer. Throws std::runtime_error on an error response or after a minute's silence.
RunAnswer awaitAnswer(executor::Executor& executor, executor::IdType id, size_t prompt_length);
// All in flight together, or each after the end of the one before.
std::vector<RunAnswer> runTogether(executor::Executor& executor, const std::vector<executor::Request>& requests);
std::vector<RunAnswer> runAlone(executor::Executor& executor, const std::vector<executor::Request>& requests);

}  // namespace chorus::test
