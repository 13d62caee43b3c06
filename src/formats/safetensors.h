// Safetensors files (Hugging Face's format): eight bytes of little-endian header size, a JSON header that maps each
// tensor name to {dtype, shape, data_offsets}, then the tensors' bytes without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"

namespace chorus {

// A host tensor, row-major, owned by someone else. Writers that do not pad their header leave bytes unaligned:
// copy before reading elements wider than a byte through a pointer (alignedRows of checkpoint/ does).
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // exactly the shape's product times the dtype's size

  int64_t elements() const { return static_cast<int64_t>(bytes.size() / dtypeSize(dtype)); }
};

// "[2, 3]", for error lines.
std::string shapeText(std::span<const int64_t> shape);

// A parsed file. Copies share the map.
class Safetensors {
 public:
  // Maps the file; views stay valid as long as any copy of this object or keepAlive() does. Throws Error(kNotFound),
  // kCorrupt for anything that contradicts itself (every check names source and tensor), kUnsupported for a dtype
  // outside DType.
  static Safetensors open(const std::filesystem::path& path);
  // Parses bytes that the caller keeps alive; source names them in errors.
  static Safetensors parse(std::span<const std::byte> bytes, std::string_view source);

  const std::string& source() const { return source_; }
  // In the order of their bytes.
  const std::vector<std::string>& names() const { return names_; }
  // nullptr when absent.
  const TensorView* find(std::string_view name) const;
  // The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::shared_ptr<const void> keepAlive() const { return map_; }
  // The whole file, header included.
  std::span<const std::byte> fileBytes() const { return file_; }

 private:
  std::string source_;
  std::shared_ptr<const void> map_;
  std::span<const std::byte> file_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes one file of tensors declared up front, in any order and from several threads. Data are laid out widest
// dtype first, so every tensor is aligned to its element size. The file appears under its name only by finish();
// without it, or after an error, nothing is left behind.
class SafetensorsWriter {
 public:
  struct Declaration {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  };

  // Reserves the disk space where the file system can. Throws Error(kExhausted) when the disk is full,
  // kInvalidArgument for a name declared twice.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Declaration>& tensors,
                    std::map<std::string, std::string> metadata = {{"format", "pt"}});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Puts bytes at `offset` of the tensor. Ranges of one tensor must not overlap. Thread-safe. Throws
  // Error(kExhausted).
  void write(std::string_view name, uint64_t offset, std::span<const std::byte> bytes);
  // Checks that every byte was written, syncs and renames.
  void finish();

 private:
  struct Slot {
    uint64_t begin = 0;
    uint64_t size = 0;
    uint64_t written = 0;
  };
  void writeAt(uint64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
  uint64_t data_begin_ = 0;
  std::mutex mutex_;
  std::map<std::string, Slot, std::less<>> slots_;
};

}  // namespace chorus
