#include "formats/source_tensors.h"

#include <iterator>
#include <utility>

#include "base/error.h"

namespace chorus {

void SourceTensors::keep(std::shared_ptr<const void> owner, std::span<const std::byte> map) {
  owners_.push_back(std::move(owner));
  if (!map.empty()) maps_.emplace(map.data(), map);
}

void SourceTensors::add(std::string name, SourceTensor tensor, std::string file) {
  tensor.markMapped([&](const std::byte* data) {
    const auto after = maps_.upper_bound(data);
    if (after == maps_.begin()) return false;
    const auto map = std::prev(after)->second;
    return data < map.data() + map.size();
  });
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' is also in {}", file, name, found->second.file);
  }
  tensors_.emplace(std::move(name), Entry{std::move(tensor), std::move(file)});
}

void SourceTensors::addFile(const TensorFile& file) {
  keep(file.keepAlive(), file.fileBytes());
  for (const std::string& name : file.names()) add(name, *file.find(name), file.source());
}

std::vector<std::string> SourceTensors::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

const SourceTensor* SourceTensors::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second.tensor;
}

std::string SourceTensors::fileOf(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? std::string(name) : it->second.file;
}

}  // namespace chorus
