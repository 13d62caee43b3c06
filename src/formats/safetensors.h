// Safetensors files (Hugging Face's format): the header size as 8 little-endian bytes, a JSON header that maps each
// tensor name to {dtype, shape, data_offsets}, then the bytes of the tensors without gaps.
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
  // Files with a larger header or with more tensors are refused. Parsing takes linear time and at most 16 bytes of
  // memory per byte of the header.
  static constexpr size_t kMaxHeaderBytes = size_t{32} << 20;
  static constexpr size_t kMaxTensors = size_t{1} << 18;

  // Maps the file. Views stay valid while any copy of the result or of its keepAlive() exists. Throws Error(kNotFound),
  // kCorrupt for a file that contradicts itself (the message names source and tensor), kUnsupported for a dtype that
  // DType lacks.
  static Safetensors open(const std::filesystem::path& path);
  // Parses bytes that the caller keeps alive; source names them in errors.
  static Safetensors parse(std::span<const std::byte> bytes, std::string_view source);

  // Size in bytes of the JSON header plus the 8 bytes before it. first: at least the first 8 bytes of the file.
  // file_bytes: size of the file. Throws the Errors of parse.
  static size_t headerBytes(std::span<const std::byte> first, uint64_t file_bytes, std::string_view source);
  // Parses only the header. head: the first headerBytes() bytes of a file of file_bytes bytes. The result has
  // hasValues() == false: all tensors read as zeros. Throws the Errors of parse.
  static Safetensors parseHeader(std::span<const std::byte> head, uint64_t file_bytes, std::string_view source);

  // The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  // header: the JSON text. data: the bytes after the header.
  void read(std::string_view header, std::span<const std::byte> data, std::string_view source);

  std::map<std::string, std::string> metadata_;
};

// Writes one file. All tensors are declared in advance; their bytes may be written in any order and by several threads.
// Tensors are laid out with the widest dtype first, so every tensor is aligned to its element size. The file appears at
// `path` only in finish(); without finish(), or after an error, nothing is left on disk.
class SafetensorsWriter {
 public:
  struct Declaration {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  };

  // Reserves the disk space if the file system supports it. Throws Error(kExhausted) when the disk is full,
  // kInvalidArgument for a name declared twice.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Declaration>& tensors,
                    std::map<std::string, std::string> metadata = {{"format", "pt"}});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes `bytes` at the byte offset `offset` of the tensor. Ranges of one tensor must not overlap. Thread-safe.
  // Throws Error(kExhausted).
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
