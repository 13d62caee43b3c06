#include "formats/tensor_file.h"

#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/zero_memory.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

namespace chorus {
namespace {

// Drops the members that the file format's class adds to TensorFile.
TensorFile asTensorFile(TensorFile&& file) { return std::move(file); }

}  // namespace

std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

const TensorView* TensorFile::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

void TensorFile::add(std::string name, TensorView tensor) {
  names_.push_back(name);
  tensors_.emplace(std::move(name), std::move(tensor));
}

void TensorFile::keep(std::shared_ptr<const void> owner) {
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  memory_ = memory_ == nullptr ? std::move(owner) : std::make_shared<const Both>(std::move(owner), std::move(memory_));
}

void TensorFile::replaceValues(uint64_t data_bytes) {
  // Twice the data's size, because half-precision tensors take that much as float32; one page more, because a file may
  // have no data and zeros_ must not be empty.
  constexpr uint64_t kPage = 4096;
  auto zeros = std::make_shared<const ZeroMemory>(checkedAdd(checkedMul(data_bytes, 2, "the file"), kPage, "the file"));
  zeros_ = zeros->bytes();
  keep(std::move(zeros));
}

TensorFile openTensorFile(const std::filesystem::path& path) {
  if (path.extension() == ".safetensors") return asTensorFile(Safetensors::open(path));
  return asTensorFile(TorchFile::open(path));
}

TensorFile parseSafetensorsHeader(std::span<const std::byte> head, uint64_t file_bytes,
                                  const std::filesystem::path& path) {
  return asTensorFile(Safetensors::parseHeader(head, file_bytes, path.string()));
}

TensorFile parseTorchHeader(const PartialBytes& bytes, const std::filesystem::path& path) {
  return asTensorFile(TorchFile::parseHeader(bytes, path.string()));
}

TensorFile parseTensorFile(std::span<const std::byte> bytes, const std::filesystem::path& path,
                           std::shared_ptr<const void> owner) {
  if (bytes.empty()) fail(ErrorCode::kCorrupt, "{}: the file is empty", path.string());
  TensorFile file = path.extension() == ".safetensors" ? asTensorFile(Safetensors::parse(bytes, path.string()))
                                                       : asTensorFile(TorchFile::parse(bytes, path.string()));
  file.keep(std::move(owner));
  return file;
}

}  // namespace chorus
