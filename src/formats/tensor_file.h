// A parsed file of named tensors, independent of the file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/partial_bytes.h"

namespace chorus {

// A non-owning view of a row-major tensor in host memory. `bytes` may be unaligned: copy them before reading elements
// wider than a byte through a pointer.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // size: product of `shape` times dtypeSize(dtype)

  int64_t elements() const { return static_cast<int64_t>(bytes.size() / dtypeSize(dtype)); }
};

// Tensors of more dimensions are refused.
inline constexpr size_t kMaxTensorRank = 16;

// Text of a shape such as "[2, 3]", for error messages.
std::string shapeText(std::span<const int64_t> shape);

// Named tensors of one file. Copies share the memory that the views point into.
class TensorFile {
 public:
  // The path, or the source given to parse(), for error messages.
  const std::string& source() const { return source_; }
  // Ordered by data offset (safetensors) or by position in the file's dictionary (PyTorch).
  const std::vector<std::string>& names() const { return names_; }
  // nullptr when absent.
  const TensorView* find(std::string_view name) const;
  std::shared_ptr<const void> keepAlive() const { return memory_; }
  // Shares ownership of `owner`, the memory that the views point into.
  void keep(std::shared_ptr<const void> owner);
  // The whole file, header included; empty when the values were not read.
  std::span<const std::byte> fileBytes() const { return file_; }
  // Bytes of the whole file, also when the values were not read.
  uint64_t fileSize() const { return file_size_; }
  // False when only names, types and shapes were read; the values of every view are then zeros.
  bool hasValues() const { return zeros_.empty(); }
  // Whether every tensor's values lie in the file itself, aligned for their type. Always false for PyTorch files.
  bool inPlace() const { return in_place_; }
  // Page-aligned zeros, large enough for any tensor of the file in its own dtype or as float32. Empty when the values
  // were read.
  std::span<const std::byte> zeros() const { return zeros_; }

 protected:
  TensorFile() = default;
  // The name must not exist yet.
  void add(std::string name, TensorView tensor);
  // Provides zeros() in place of the values of a file that has at most data_bytes bytes of them.
  void replaceValues(uint64_t data_bytes);

  std::string source_;
  std::shared_ptr<const void> memory_;  // owner of the viewed bytes; empty when the caller of parse() owns them
  std::span<const std::byte> file_;
  uint64_t file_size_ = 0;
  bool in_place_ = false;
  std::span<const std::byte> zeros_;

 private:
  std::vector<std::string> names_;
  std::map<std::string, TensorView, std::less<>> tensors_;  // not a hash table: hostile names could collide
};

// Maps and parses a file: safetensors if the path ends in ".safetensors", otherwise PyTorch. Throws the Errors of
// Safetensors::open or TorchFile::open.
TensorFile openTensorFile(const std::filesystem::path& path);
// Parses bytes that were read from `path`. The result shares ownership of `owner`, which holds the bytes.
TensorFile parseTensorFile(std::span<const std::byte> bytes, const std::filesystem::path& path,
                           std::shared_ptr<const void> owner);
// Safetensors::parseHeader as a TensorFile.
TensorFile parseSafetensorsHeader(std::span<const std::byte> head, uint64_t file_bytes,
                                  const std::filesystem::path& path);
// TorchFile::parseHeader as a TensorFile.
TensorFile parseTorchHeader(const PartialBytes& bytes, const std::filesystem::path& path);

}  // namespace chorus
