// NumPy's .npz files: zip archives of .npy files, stored or compressed (numpy.savez, numpy.savez_compressed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "formats/npy.h"
#include "formats/zip_directory.h"

namespace chorus {

struct NpzArray {
  std::string name;  // of its entry, without ".npy"
  NpyHeader header;
  ZipEntry entry;
};

class NpzFile {
 public:
  // Whether a file that begins with these bytes may be an npz file.
  static bool isNpz(std::span<const std::byte> first);
  // Reads the directory and the header of each array; source names the file in errors. The bytes must outlive the
  // result. Memory is bounded by their number. Throws Error:
  //   kCorrupt      a damaged archive or header, or an entry whose size is not that of its array
  //   kUnsupported  an entry that is no array, or the unsupported features of ZipArchive and parseNpyHeader
  static NpzFile parse(std::span<const std::byte> bytes, std::string_view source);

  const std::vector<NpzArray>& arrays() const { return arrays_; }
  // The values of an array that is not compressed, where they are stored.
  std::span<const std::byte> stored(const NpzArray& array) const;
  // The bytes of an array's entry in the file.
  std::span<const std::byte> packed(const NpzArray& array) const { return archive_.read(array.entry); }
  // Calls sink for consecutive pieces of the array's values. Throws Error(kCorrupt) if the compressed data is damaged
  // or the checksum of the entry differs.
  void unpack(const NpzArray& array, FunctionRef<void(std::span<const std::byte>)> sink) const;

 private:
  NpzFile(std::span<const std::byte> bytes, std::string_view source);

  std::string source_;
  ZipArchive archive_;
  std::vector<NpzArray> arrays_;
};

}  // namespace chorus
