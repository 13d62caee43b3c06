#include "padded_run.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/file.h"
#include "command.h"
#include "executor_runs.h"
#include "formats/npy.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

void writePrompts(const std::filesystem::path& path, const std::vector<executor::Request>& requests) {
  size_t longest = 0;
  for (const auto& request : requests) longest = std::max(longest, request.getInputTokenIds().size());
  std::vector<int32_t> padded(requests.size() * longest, -1);
  for (size_t i = 0; i < requests.size(); ++i) {
    std::ranges::copy(requests[i].getInputTokenIds(), padded.begin() + static_cast<ptrdiff_t>(i * longest));
  }
  const int64_t shape[] = {static_cast<int64_t>(requests.size()), static_cast<int64_t>(longest)};
  writeFileAtomically(path, npyBytes(DType::kInt32, shape, padded.data()));
}

template <typename T>
std::vector<T> readArray(const std::filesystem::path& path) {
  const MappedFile file(path);
  const NpyArray array = parseNpy(file.bytes(), path.string());
  std::vector<T> values(array.data.size() / sizeof(T));
  std::memcpy(values.data(), array.data.data(), array.data.size());
  return values;
}

}  // namespace

std::vector<PaddedAnswer> runPadded(const GoldenCase& golden, const std::vector<executor::Request>& requests,
                                    const std::filesystem::path& engine_dir, const std::string& backend,
                                    std::optional<Isa> isa) {
  const TempDir directory;
  const auto prompts = directory.path() / "prompts.npy", tokens = directory.path() / "tokens.npy",
             logits = directory.path() / "logits.npy";
  writePrompts(prompts, requests);
  int32_t longest = 0;
  for (const auto& request : requests) longest = std::max(longest, request.getMaxTokens());
  std::vector<std::string> arguments = {"run",
                                        "--engine_dir",
                                        engine_dir.string(),
                                        "--input_file",
                                        prompts.string(),
                                        "--max_output_len",
                                        std::to_string(longest),
                                        "--end_id",
                                        "-1",
                                        "--output_npy",
                                        tokens.string(),
                                        "--backend",
                                        backend,
                                        "--output_logits_npy",
                                        logits.string()};
  if (isa) arguments.insert(arguments.end(), {"--isa", std::string(isaName(*isa))});
  arguments.push_back("--lora_dir");
  for (const auto& adapter : adapterDirectories(golden)) arguments.push_back(adapter.string());
  arguments.push_back("--lora_task_uids");
  for (const auto& request : requests) {
    const auto& lora = request.getLoraConfig();
    arguments.push_back(lora ? std::to_string(lora->getTaskId() - 1) : "-1");
  }
  const CommandResult result = runChorus(arguments);
  if (result.status != 0) throw std::runtime_error("chorus run: " + result.errors);

  const auto all_tokens = readArray<int32_t>(tokens);
  const auto all_logits = readArray<float>(logits);
  const auto vocab = static_cast<ptrdiff_t>(golden.vocab_size);
  std::vector<PaddedAnswer> answers;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto first = all_tokens.begin() + static_cast<ptrdiff_t>(i) * longest;
    const auto row = all_logits.begin() + static_cast<ptrdiff_t>(i) * vocab;
    answers.push_back({{first, first + requests[i].getMaxTokens()}, {row, row + vocab}});
  }
  return answers;
}

}  // namespace chorus::test
