#include "formats/tensor_file.h"

#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace chorus {

std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

const TensorView* TensorFile::find(std::string_view name) const {
  const auto it = tensors_.find(std::string(name));
  return it == tensors_.end() ? nullptr : &it->second;
}

void TensorFile::add(std::string name, TensorView tensor) {
  names_.push_back(name);
  tensors_.emplace(std::move(name), std::move(tensor));
}

TensorFile openTensorFile(const std::filesystem::path& path) {
  if (path.extension() == ".safetensors") return Safetensors::open(path);
  return TorchFile::open(path);
}

}  // namespace chorus
