// Runs requests through the Executor and keeps what tests compare: tokens, logits and their hashes.
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
  std::string generation_hash;           // SHA-256 of generation_logits; empty if not requested
  std::string logits_hash;    // SHA-256 of context logits, then generation logits; empty without context logits
  int32_t cached_tokens = 0;  // prompt tokens found in the KV cache
};

// A greedy request with all logits that always generates `new_tokens` tokens. The task id of an adapter is its index
// plus one.
executor::Request greedyRequest(const std::vector<int32_t>& prompt, int32_t new_tokens, std::optional<size_t> adapter);
// The request without context logits, so that it may reuse KV blocks.
executor::Request withoutContextLogits(executor::Request request);
// Returns one request per row of the golden.
std::vector<executor::Request> goldenRequests(const GoldenCase& golden);
// An executor over the engine with its adapters registered.
std::unique_ptr<executor::Executor> openExecutor(const std::filesystem::path& engine_dir,
                                                 const executor::ExecutorConfig& config,
                                                 const std::vector<std::filesystem::path>& adapters);
// Loads every adapter with a request for one token, so that later requests do not wait for loads and can share steps.
void loadAdapters(executor::Executor& executor, size_t adapters);
// The golden's adapter directories.
std::vector<std::filesystem::path> adapterDirectories(const GoldenCase& golden);

// Waits for the answer. Throws std::runtime_error on an error response or if none comes for a minute.
RunAnswer awaitAnswer(executor::Executor& executor, executor::IdType id, size_t prompt_length);
// Waits for the end of a request that may have been cancelled.
void awaitEnd(executor::Executor& executor, executor::IdType id);
// Returns one SHA-256 over the logits hashes of all answers, in order.
std::string hashOfAll(const std::vector<RunAnswer>& answers);
// Runs the requests all in flight together, or each after the end of the one before.
std::vector<RunAnswer> runTogether(executor::Executor& executor, const std::vector<executor::Request>& requests);
std::vector<RunAnswer> runAlone(executor::Executor& executor, const std::vector<executor::Request>& requests);

}  // namespace chorus::test
