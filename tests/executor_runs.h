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
  std::string generation_hash;           // SHA-256 of them; empty where they were not asked for
  std::string logits_hash;               // SHA-256 of context logits, then generation logits; empty without the former
  int32_t cached_tokens = 0;             // of the prompt, found in the KV cache
};

// A greedy request for `new_tokens` tokens whatever they are, with all its logits. Adapters carry their index plus
// one as task id.
executor::Request greedyRequest(const std::vector<int32_t>& prompt, int32_t new_tokens, std::optional<size_t> adapter);
// The request without the prompt's logits: one that may reuse KV blocks.
executor::Request withoutContextLogits(executor::Request request);
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
// The same for a request that may be cancelled: waits for its end alone.
void awaitEnd(executor::Executor& executor, executor::IdType id);
// One SHA-256 of all answers' hashes, in order.
std::string hashOfAll(const std::vector<RunAnswer>& answers);
// All in flight together, or each after the end of the one before.
std::vector<RunAnswer> runTogether(executor::Executor& executor, const std::vector<executor::Request>& requests);
std::vector<RunAnswer> runAlone(executor::Executor& executor, const std::vector<executor::Request>& requests);

}  // namespace chorus::test
