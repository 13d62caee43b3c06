#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/evaluation/embedded_files.h"
#include "cli/evaluation/summaries.h"
#include "cli/evaluation/summary_prompt.h"
#include "lora/adapter_files.h"

namespace chorus {
namespace {

constexpr size_t kMostOutput = size_t{256} << 20;

// A file without a name, in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view contents = {}) : fd_(::memfd_create("chorus", MFD_CLOEXEC)) {
    if (fd_ < 0) fail(ErrorCode::kExhausted, "--test_hf: no temporary file: {}", std::strerror(errno));
    while (!contents.empty()) {
      const ssize_t written = ::write(fd_, contents.data(), contents.size());
      if (written < 0)
        fail(ErrorCode::kExhausted, "--test_hf: cannot write a temporary file: {}", std::strerror(errno));
      contents.remove_prefix(static_cast<size_t>(written));
    }
    ::lseek(fd_, 0, SEEK_SET);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string contents() const {
    ::lseek(fd_, 0, SEEK_SET);
    return readDescriptor(fd_, "the output of --test_hf", kMostOutput);
  }

 private:
  int fd_;
};

struct Output {
  int status = 0;
  std::string out, errors;
};

Output runPython(const std::string& python, const char* script, std::string_view input) {
  const MemoryFile in(input), out, errors;
  std::string name = python, option = "-c", text = script;
  char* const arguments[] = {name.data(), option.data(), text.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.fd(), STDERR_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, python.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    fail(ErrorCode::kNotFound, "--test_hf: cannot run {}: {}; --hf_python names a Python with transformers", python,
         std::strerror(failed));
  }
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), out.contents(), errors.contents()};
}

// The directories that PEFT reads, by index in --lora_dir; those of adapters that are not used are empty.
std::vector<std::string> peftDirectories(const SummarizeArgs& args) {
  std::vector<std::string> directories(args.lora_dirs.size());
  for (const int uid : args.lora_task_uids) {
    if (uid < 0) continue;
    const std::string& path = args.lora_dirs[static_cast<size_t>(uid)];
    const bool is_directory = std::filesystem::is_directory(path);
    const auto directory = is_directory ? adapterDirectoryWithin(Directory::open(path)) : nullptr;
    if (directory == nullptr || !directory->hasName(kPeftConfigFile)) {
      fail(ErrorCode::kUnsupported,
           "--test_hf: --lora_dir {}: it has no {}, and PEFT reads only adapters that have one", path, kPeftConfigFile);
    }
    directories[static_cast<size_t>(uid)] = directory->path().string();
  }
  return directories;
}

Json jobOf(const SummarizeArgs& args, const std::vector<std::string>& prompts, bool as_chat, const TextCodec& codec) {
  const std::optional<int32_t> end_id = endTokenOf(args, codec);
  const RunSampling& sampling = args.sampling;
  Json how = {{"repetition_penalty", sampling.repetition_penalty}};
  if (sampling.no_repeat_ngram_size > 0) how["no_repeat_ngram_size"] = sampling.no_repeat_ngram_size;
  how["do_sample"] = sampling.top_k != 1 && sampling.temperature > 0;
  if (how["do_sample"] == true) {
    how["top_k"] = sampling.top_k;
    how["temperature"] = sampling.temperature;
    if (sampling.top_p > 0) how["top_p"] = sampling.top_p;
  }
  // fp16 and float16 are one type.
  const std::string bits = args.data_type.substr(args.data_type.size() - 2);
  const bool bfloat = args.data_type.starts_with("b");
  return {{"model_dir", args.hf_model_dir},
          {"tokenizer_dir", args.tokenizer_dir},
          {"dtype", (bfloat ? "bfloat" : "float") + bits},
          {"device_map_auto", args.hf_device_map_auto},
          {"prompts", prompts},
          {"system", as_chat ? Json(kQwen2SystemMessage) : Json()},
          {"batch_size", args.batch_size},
          {"max_ite", args.max_ite},
          {"output_len", args.output_len},
          {"max_input_length", args.max_input_length},
          {"min_input_length", args.min_input_length},
          {"add_special_tokens", !args.no_add_special_tokens},
          {"end_id", end_id ? Json(*end_id) : Json()},
          {"random_seed", sampling.random_seed},
          {"eval_ppl", args.eval_ppl},
          {"lora_dirs", peftDirectories(args)},
          {"lora_task_uids", args.lora_task_uids},
          {"sampling", std::move(how)}};
}

// A perplexity; Python's script writes those that JSON has no number for as text.
double numberOf(const Json& answer, const std::string& key, const std::string& source) {
  const auto found = answer.find(key);
  if (found == answer.end() || !found->is_string()) return jsonGet<double>(answer, key, source);
  const auto text = found->get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  fail(ErrorCode::kCorrupt, "{}: '{}' is not a number", source, key);
}

std::string_view lastLine(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}
}  // namespace

Summaries summarizeWithTransformers(const SummarizeArgs& args, const std::vector<std::string>& prompts, bool as_chat,
                                    const TextCodec& codec) {
  const std::string job = jobOf(args, prompts, as_chat, codec).dump(-1, ' ', false, Json::error_handler_t::replace);
  const Output output = runPython(args.hf_python, kHuggingFaceScript, job);
  if (!output.errors.empty()) log::debug("{}: {}", args.hf_python, output.errors);
  const std::string source = "output of " + args.hf_python;
  Summaries summaries;
  for (std::string_view rest = output.out; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const Json answer = parseJson(rest.substr(0, end), source);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (answer.contains("error")) {
      fail(ErrorCode::kUnsupported,
           "--test_hf: {}: {}; it needs torch and transformers, and peft with --lora_task_uids; --hf_python names "
           "another Python",
           args.hf_python, jsonGet<std::string>(answer, "error", source));
    }
    Summary summary{jsonGet<size_t>(answer, "article", source), jsonGet<std::string>(answer, "text", source),
                    jsonGet<size_t>(answer, "tokens", source), std::nullopt};
    if (summary.article >= prompts.size()) fail(ErrorCode::kCorrupt, "{}: no article {}", source, summary.article);
    if (args.eval_ppl) summary.perplexity = numberOf(answer, "perplexity", source);
    if (!jsonGet<bool>(answer, "timed", source)) {
      summaries.first = std::move(summary);
      continue;
    }
    summaries.seconds += jsonGet<double>(answer, "seconds", source);
    summaries.list.push_back(std::move(summary));
  }
  if (output.status != 0) {
    fail(ErrorCode::kInternal, "--test_hf: {} ended with status {}: {}", args.hf_python, output.status,
         lastLine(output.errors));
  }
  return summaries;
}

}  // namespace chorus
