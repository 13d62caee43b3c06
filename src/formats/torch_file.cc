#include "formats/torch_file.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "formats/torch_contents.h"

namespace chorus {
namespace {

using NamedTensors = std::vector<std::pair<std::string, const TorchTensor*>>;

NamedTensors tensorsOf(const TorchContents& contents, const PickleValue& dictionary, bool may_nest) {
  const auto items = namedItems(contents.pickle.heap, dictionary);
  NamedTensors result;
  for (const auto& [name, value] : items) {
    if (const TorchTensor* tensor = contents.objects.tensor(value)) result.emplace_back(name, tensor);
  }
  if (!result.empty() || !may_nest) return result;
  for (const std::string_view inner : {"state_dict", "model_state_dict", "module"}) {
    for (const auto& [name, value] : items) {
      if (name == inner && value.isDict()) result = tensorsOf(contents, value, false);
    }
    if (!result.empty()) break;
  }
  return result;
}

// zeros: see readTorchHeader.
TorchViews addTensors(const TorchContents& contents, uint64_t file_bytes, std::span<const std::byte> zeros,
                      std::string_view source, std::vector<std::pair<std::string, TensorView>>& tensors) {
  if (!contents.pickle.root.isDict()) {
    fail(ErrorCode::kUnsupported, "{}: expected a dictionary of tensors; save the model's state_dict", source);
  }
  TorchViews views(file_bytes, zeros, source);
  for (const auto& [name, tensor] : tensorsOf(contents, contents.pickle.root, true)) {
    tensors.emplace_back(name, views.view(contents, *tensor, name));
  }
  return views;
}
}  // namespace

TorchFile TorchFile::parse(std::span<const std::byte> bytes, std::string_view source) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  const TorchViews views = addTensors(readTorchContents(bytes, source), bytes.size(), {}, source, tensors);
  TorchFile file;
  file.source_ = source;
  file.file_ = bytes;
  file.file_size_ = bytes.size();
  file.memory_ = views.copies();
  for (auto& [name, view] : tensors) file.add(std::move(name), std::move(view));
  return file;
}

TorchFile TorchFile::parseHeader(const PartialBytes& archive, std::string_view source) {
  TorchFile file;
  file.source_ = source;
  file.file_size_ = archive.size();
  file.replaceValues(archive.size());
  std::vector<std::pair<std::string, TensorView>> tensors;
  addTensors(readTorchHeader(archive, source, file.zeros_), archive.size(), file.zeros_, source, tensors);
  for (auto& [name, view] : tensors) file.add(std::move(name), std::move(view));
  return file;
}

TorchFile TorchFile::open(const std::filesystem::path& path) {
  auto map = std::make_shared<const MappedFile>(path);
  TorchFile file = parse(map->bytes(), path.string());
  file.keep(std::move(map));
  return file;
}

}  // namespace chorus
