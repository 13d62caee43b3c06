// A parsed file of named tensors, whatever its format.
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

namespace chorus {

// A host tensor, row-major, owned by someone else. Formats without alignment leave bytes unaligned: copy before reading
// elements wider than a byte through a pointer (alignedRows of checkpoint/ does).
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // exactly the shape's product times the dtype's size

  int64_t elements() const { return static_cast<int64_t>(bytes.size() / dtypeSize(dtype)); }
};

// Tensors of more dimensions are refused.
inline constexpr size_t kMaxTensorRank = 16;

// "[2, 3]", for error lines.
std::string shapeText(std::span<const int64_t> shape);

// Copies share the memory that views point into.
class TensorFile {
 public:
  // The path, or what parse() was given, for error lines.
  const std::string& source() const { return source_; }
  // In the order of their bytes (safetensors) or of the file's dictionary (PyTorch).
  const std::vector<std::string>& names() const { return names_; }
  // nullptr when absent.
  const TensorView* find(std::string_view name) const;
  std::shared_ptr<const void> keepAlive() const { return memory_; }
  // Keeps what the bytes given to parse() lie in too.
  void keep(std::shared_ptr<const void> owner);
  // The whole file, header included; empty when the values were not read.
  std::span<const std::byte> fileBytes() const { return file_; }
  // False: only names, types and shapes were read. Every view has zeros for its values.
  bool hasValues() const { return zeros_.empty(); }
  // Page-aligned, as long as any tensor is in its own type and in float32; empty when the values were read.
  std::span<const std::byte> zeros() const { return zeros_; }

 protected:
  TensorFile() = default;
  // No other has this name.
  void add(std::string name, TensorView tensor);

  std::string source_;
  std::shared_ptr<const void> memory_;  // of views and fileBytes(); empty when the caller of parse() owns it
  std::span<const std::byte> file_;
  std::span<const std::byte> zeros_;

 private:
  std::vector<std::string> names_;
  std::map<std::string, TensorView, std::less<>> tensors_;  // no hash table: names may be chosen to collide
};

// Maps and parses PATH: safetensors by its ending, else a PyTorch file (torch_file.h). Throws their Errors.
TensorFile openTensorFile(const std::filesystem::path& path);
// Parses bytes that were read from PATH; the result keeps their owner.
TensorFile parseTensorFile(std::span<const std::byte> bytes, const std::filesystem::path& path,
                           std::shared_ptr<const void> owner);
// Safetensors::parseHeader as a TensorFile.
TensorFile parseSafetensorsHeader(std::span<const std::byte> head, uint64_t file_bytes,
                                  const std::filesystem::path& path);

}  // namespace chorus
