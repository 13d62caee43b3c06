// Sends adapters as tensors: the first request of each adapter carries them, later ones only name the task id.
//
//   lora ENGINE_DIR PROMPT_FILE ADAPTER_DIR...
//
// PROMPT_FILE: lists of token ids, "[1, 2, 3]", one per line. ADAPTER_DIR: model.lora_weights.npy and
// model.lora_config.npy, as lora-convert writes them. Prints one line of token ids for each adapter and prompt, in this
// order. Fails when a request with only the id gets a different answer.
#include <fstream>
#include <iostream>
#include <sstream>

#include "read_npy.h"

namespace tle = chorus::executor;

namespace {

std::vector<tle::VecTokens> readPrompts(std::string const& path) {
  std::vector<tle::VecTokens> prompts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    for (char& c : line) c = c == '[' || c == ']' || c == ',' ? ' ' : c;
    std::istringstream words(line);
    tle::VecTokens prompt;
    for (tle::TokenIdType token = 0; words >> token;) prompt.push_back(token);
    if (!prompt.empty()) prompts.push_back(prompt);
  }
  if (prompts.empty()) throw std::runtime_error(path + " has no prompts");
  return prompts;
}

tle::VecTokens answerOf(tle::Response const& response) {
  if (response.hasError()) throw std::runtime_error(response.getErrorMsg());
  return response.getResult().outputTokenIds.at(0);
}

int run(int argc, char* argv[]) {
  auto const prompts = readPrompts(argv[2]);
  tle::SizeType32 const beamWidth = 1;
  tle::ExecutorConfig config(beamWidth);
  // Host cache size in bytes; all other fields have their defaults.
  config.setPeftCacheConfig(tle::PeftCacheConfig(0, 0, tle::PeftCacheConfig::kDefaultOptimalAdapterSize,
                                                 tle::PeftCacheConfig::kDefaultMaxAdapterSize, 1, 1, 1, 24, 8,
                                                 std::nullopt, std::size_t{64} << 20));
  tle::Executor executor(argv[1], tle::ModelType::kDECODER_ONLY, config);

  tle::OutputConfig output;
  output.excludeInputFromOutput = true;
  tle::SizeType32 const endId = 1;
  auto const request = [&](tle::VecTokens const& prompt, tle::LoraConfig const& lora) {
    tle::Request made(prompt, /*maxTokens=*/48, /*streaming=*/false, tle::SamplingConfig(beamWidth), output, endId);
    made.setLoraConfig(lora);
    return made;
  };

  std::vector<tle::VecTokens> firstAnswers;
  for (int i = 3; i < argc; ++i) {
    std::string const directory = argv[i];
    auto const taskId = static_cast<tle::IdType>(i - 3);
    tle::LoraConfig const lora(taskId, readNpy(directory + "/model.lora_weights.npy"),
                               readNpy(directory + "/model.lora_config.npy"));
    auto const id = executor.enqueueRequest(request(prompts[0], lora));
    firstAnswers.push_back(answerOf(executor.awaitResponses(id).at(0)));
  }

  // Sends all adapters and prompts at once, by task ids.
  std::vector<tle::Request> requests;
  for (std::size_t task = 0; task < firstAnswers.size(); ++task) {
    for (auto const& prompt : prompts) requests.push_back(request(prompt, tle::LoraConfig(task)));
  }
  auto const all = executor.awaitResponses(executor.enqueueRequests(requests));
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto const tokens = answerOf(all[i].at(0));
    std::cout << "[";
    for (std::size_t t = 0; t < tokens.size(); ++t) std::cout << (t == 0 ? "" : ", ") << tokens[t];
    std::cout << "]\n";
    if (i % prompts.size() == 0 && tokens != firstAnswers[i / prompts.size()]) {
      throw std::runtime_error("task " + std::to_string(i / prompts.size()) + " answers otherwise by its id alone");
    }
  }

  // A request fails when nobody has sent weights for its task id.
  auto const unknown = executor.enqueueRequest(request(prompts[0], tle::LoraConfig(firstAnswers.size())));
  std::cerr << "task " << firstAnswers.size() << ": " << executor.awaitResponses(unknown).at(0).getErrorMsg() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc < 4) {
    std::cerr << "usage: " << argv[0] << " ENGINE_DIR PROMPT_FILE ADAPTER_DIR...\n";
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (std::exception const& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
