#include "formats/huggingface_files.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace chorus {
std::map<std::string, std::string> readWeightMap(const std::filesystem::path& index_path) {
  const std::string source = index_path.string();
  const Json index = readJsonFile(index_path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    fail(ErrorCode::kCorrupt, "{}: 'weight_map' must be an object of tensor names to file names", source);
  }
  std::map<std::string, std::string> result;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) fail(ErrorCode::kCorrupt, "{}: weight_map '{}' must name a file", source, name);
    const auto file_name = file.get<std::string>();
    if (file_name.empty() || file_name == "." || file_name == ".." ||
        file_name.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
      fail(ErrorCode::kCorrupt, "{}: weight_map '{}' must name a file of the same directory, not '{}'", source, name,
           file_name);
    }
    result.emplace(name, file_name);
  }
  return result;
}

void HuggingFaceFiles::addFile(const std::filesystem::path& path) {
  files_.push_back(openTensorFile(path));
  for (const std::string& name : files_.back().names()) {
    const auto [it, inserted] = file_of_.emplace(name, files_.size() - 1);
    if (!inserted) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' is also in {}", path.string(), name, files_[it->second].source());
    }
    names_.push_back(name);
  }
}

void HuggingFaceFiles::addShards(const std::filesystem::path& index) {
  const auto weight_map = readWeightMap(index);
  std::set<std::string> shards;
  for (const auto& [name, file] : weight_map) shards.insert(file);
  for (const std::string& shard : shards) {
    if (!std::filesystem::exists(dir_ / shard)) {
      fail(ErrorCode::kNotFound, "{}: shard {} is missing; download it", index.string(), shard);
    }
    addFile(dir_ / shard);
  }
  for (const auto& [name, file] : weight_map) {
    const auto it = file_of_.find(name);
    if (it == file_of_.end() || files_[it->second].source() != (dir_ / file).string()) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' is not in {}", index.string(), name, file);
    }
  }
  for (const std::string& name : names_) {
    if (!weight_map.contains(name)) {
      fail(ErrorCode::kCorrupt, "{}: tensor '{}' is not in the weight_map of {}", fileOf(name), name, index.string());
    }
  }
}

HuggingFaceFiles HuggingFaceFiles::open(const std::filesystem::path& dir) {
  HuggingFaceFiles files;
  files.dir_ = dir;
  bool found = false;
  for (const char* name : {"model.safetensors", "pytorch_model.bin"}) {
    const auto single = dir / name;
    const auto index = dir / fmt::format("{}.index.json", name);
    if (std::filesystem::exists(single)) {
      files.addFile(single);
    } else if (std::filesystem::exists(index)) {
      files.addShards(index);
    } else {
      continue;
    }
    found = true;
    break;
  }
  if (!found) {
    fail(ErrorCode::kNotFound,
         "{}: no weights: neither model.safetensors nor pytorch_model.bin, nor an index of shards", dir.string());
  }
  std::sort(files.names_.begin(), files.names_.end());
  return files;
}

const TensorView* HuggingFaceFiles::find(std::string_view name) const {
  const auto it = file_of_.find(std::string(name));
  return it == file_of_.end() ? nullptr : files_[it->second].find(name);
}

std::string HuggingFaceFiles::fileOf(std::string_view name) const {
  const auto it = file_of_.find(std::string(name));
  return it == file_of_.end() ? dir_.string() : files_[it->second].source();
}

}  // namespace chorus
