#include "convert/sources/deepspeed_files.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "convert/sources/source_paths.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

using Kind = DeepSpeedFileName::Kind;

constexpr std::string_view kLatest = "latest";
constexpr std::string_view kTagPrefix = "global_step";

// Reads a file name from left to right.
class NameReader {
 public:
  explicit NameReader(std::string_view text) : text_(text) {}

  bool accept(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool number(int32_t& value) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return true;
  }
  bool ended() const { return text_.empty(); }

 private:
  std::string_view text_;
};

// layer_LL-model_states.pt, layer_LL-model_MM-model_states.pt, layer_L_expert_E_mp_rank_MM_model_states.pt
std::optional<DeepSpeedFileName> layerFile(NameReader name) {
  DeepSpeedFileName file = {.kind = Kind::kLayer};
  int32_t expert = 0;
  if (!name.number(file.layer)) return std::nullopt;
  if (name.accept("_expert_") && name.number(expert)) {
    file.kind = Kind::kExpert;
    return file;
  }
  if (name.accept("-model_states.pt") && name.ended()) return file;
  if (!name.accept("-model_") || !name.number(file.tensor_rank) || !name.accept("-model_states.pt") || !name.ended()) {
    return std::nullopt;
  }
  return file;
}

// The names of the entries of a directory for which keep(entry) is true, sorted.
template <typename F>
std::vector<std::string> entriesOf(const fs::path& dir, F&& keep) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(dir, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (keep(*entry)) names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

bool hasStates(const fs::path& dir) {
  return !entriesOf(dir, [](const fs::directory_entry& entry) {
            return parseDeepSpeedFileName(entry.path().filename().string()).has_value();
          }).empty();
}

std::vector<std::string> tagsOf(const fs::path& path) {
  return entriesOf(path, [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored) && entry.path().filename().string().starts_with(kTagPrefix) &&
           hasStates(entry.path());
  });
}

// The directory that the file "latest" names.
fs::path latestOf(const fs::path& path) {
  constexpr size_t kMaxTagBytes = 4096;
  const fs::path latest = path / kLatest;
  std::string tag = readFile(latest, kMaxTagBytes);
  tag.erase(tag.find_last_not_of(" \t\r\n") + 1);
  if (tag.empty() || tag == "." || tag == ".." || tag.find_first_of(std::string("/\\\0\n", 4)) != std::string::npos) {
    fail(ErrorCode::kCorrupt, "{}: it must name a directory beside it, not '{}'", latest.string(), tag);
  }
  if (!hasStates(path / tag)) {
    fail(ErrorCode::kNotFound, "{}: it names '{}', which has no files of a DeepSpeed checkpoint", latest.string(), tag);
  }
  return path / tag;
}

fs::path directoryOf(const fs::path& path) {
  if (hasStates(path)) return path;
  if (isFile(path / kLatest)) return latestOf(path);
  const std::vector<std::string> tags = tagsOf(path);
  if (tags.size() == 1) return path / tags[0];
  if (tags.empty()) fail(ErrorCode::kNotFound, "{}: no files of a DeepSpeed checkpoint", path.string());
  fail(ErrorCode::kNotFound, "{}: it has no file '{}', and several checkpoints; give the path of one, such as {}",
       path.string(), kLatest, (path / tags.back()).string());
}

// The directories where the config may be.
std::vector<fs::path> configDirectories(const fs::path& directory) {
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(directory, error);
  if (error) return {directory};
  return {directory, absolute.parent_path(), absolute.parent_path().parent_path()};
}

std::optional<fs::path> configOf(const fs::path& directory) {
  for (const fs::path& candidate : configDirectories(directory)) {
    if (isFile(candidate / "config.json")) return candidate / "config.json";
  }
  return std::nullopt;
}

void addFile(DeepSpeedFiles::ByRank& files, int32_t rank, const fs::path& path) {
  const auto [it, inserted] = files.emplace(rank, path);
  if (inserted) return;
  fail(ErrorCode::kCorrupt, "{}: {} and {} are files of the same rank", path.parent_path().string(),
       it->second.filename().string(), path.filename().string());
}
}  // namespace

std::optional<DeepSpeedFileName> parseDeepSpeedFileName(std::string_view text) {
  NameReader name(text);
  DeepSpeedFileName file;
  if (name.accept("layer_")) return layerFile(name);
  int32_t rank = 0;
  if (name.accept("expp_rank_") && name.number(rank)) return DeepSpeedFileName{.kind = Kind::kExpert};
  // A prefix says in which type the optimizer works.
  if (name.accept("bf16_") || name.accept("fp16_")) file.kind = Kind::kOptimizer;
  if (name.accept("zero_pp_rank_")) {
    if (!name.number(rank) || !name.accept("_")) return std::nullopt;
    file.zero_rank = rank;
  }
  if (!name.accept("mp_rank_") || !name.number(file.tensor_rank)) return std::nullopt;
  if (name.accept("_model_states.pt") && name.ended() && file.kind == Kind::kModel) return file;
  // Old versions have no underscore here.
  if (!name.accept("_optim_states.pt") && !name.accept("optim_states.pt")) return std::nullopt;
  file.kind = Kind::kOptimizer;
  return name.ended() && file.zero_rank ? std::optional(file) : std::nullopt;
}

bool isDeepSpeedCheckpoint(const fs::path& path) {
  if (hasStates(path) || !tagsOf(path).empty()) return true;
  if (!isFile(path / kLatest)) return false;
  const auto anything = [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored) && hasStates(entry.path());
  };
  return isFile(path / "zero_to_fp32.py") || !entriesOf(path, anything).empty();
}

DeepSpeedFiles findDeepSpeedFiles(const fs::path& path) {
  DeepSpeedFiles files;
  files.directory = directoryOf(path);
  const auto config = configOf(files.directory);
  if (!config) {
    std::string places;
    for (const fs::path& place : configDirectories(files.directory)) {
      places += (places.empty() ? "" : ", ") + place.string();
    }
    fail(ErrorCode::kNotFound, "{}: config.json is missing; copy the model's into one of {}", path.string(), places);
  }
  files.config = *config;
  std::vector<int32_t> tensor_ranks;
  for (const std::string& text : entriesOf(files.directory, [](const fs::directory_entry&) { return true; })) {
    const auto name = parseDeepSpeedFileName(text);
    if (!name) continue;
    const fs::path file = files.directory / text;
    if (name->kind == Kind::kExpert) {
      fail(ErrorCode::kUnsupported, "{}: a file of experts of DeepSpeed's mixture of experts, which is not supported",
           file.string());
    }
    if (name->kind == Kind::kLayer) {
      addFile(files.layers[name->layer], name->tensor_rank, file);
    } else if (!name->zero_rank) {
      addFile(files.models, name->tensor_rank, file);
    } else {
      if (std::ranges::find(tensor_ranks, name->tensor_rank) == tensor_ranks.end()) {
        tensor_ranks.push_back(name->tensor_rank);
      }
      if (name->tensor_rank > 0) continue;
      addFile(name->kind == Kind::kModel ? files.zero3_models : files.optimizers, *name->zero_rank, file);
    }
  }
  files.optimizer_tensor_ranks = static_cast<int32_t>(tensor_ranks.size());
  return files;
}

}  // namespace chorus
