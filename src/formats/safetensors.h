// Safetensors files (Hugging Face's format): eight bytes of little-endian header size, a JSON header that maps each
// tensor name to {dtype, shape, data_offsets}, then the tensors' bytes without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_file.h"

namespace chorus {

// A parsed file. Copies share the map.
class Safetensors : public TensorFile {
 public:
  // A file with a larger header, or more tensors, is refused. Parsing takes linear time and at most 16 bytes for each
  // byte of the header.
  static constexpr size_t kMaxHeaderBytes = size_t{32} << 20;
  static constexpr size_t kMaxTensors = size_t{1} << 18;

  // Maps the file; views stay valid as long as any copy of this object or keepAlive() does. Throws Error(kNotFound),
  // kCorrupt for anything that contradicts itself (every check names source and tensor), kUnsupported for a dtype
  // outside DType.
  static Safetensors open(const std::filesystem::path& path);
  // Parses bytes that the caller keeps alive; source names them in errors.
  static Safetensors parse(std::span<const std::byte> bytes, std::string_view source);

  // Size of the header with the eight bytes before it. first: the file's first eight bytes or more; file_bytes: its
  // size. Throws Error as parse.
  static size_t headerBytes(std::span<const std::byte> first, uint64_t file_bytes, std::string_view source);
  // Parses the header alone, the first headerBytes of a file of file_bytes: a TensorFile without values. Throws Error
  // as parse.
  static Safetensors parseHeader(std::span<const std::byte> head, uint64_t file_bytes, std::string_view source);

  // The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  // header: the JSON text; data: what follows it.
  void read(std::string_view header, std::span<const std::byte> data, std::string_view source);

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
