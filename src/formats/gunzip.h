// Decompresses a gzip file into memory without a name, or into a temporary file without a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace chorus {

class BackgroundThrottle;

// Decompressed bytes; read-only, page-aligned.
class UnpackedFile {
 public:
  // Maps the first `size` bytes of `descriptor`, which may be closed afterwards. Throws Error(kExhausted).
  UnpackedFile(int descriptor, size_t size);
  ~UnpackedFile();
  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Whether a file that begins with these bytes is a gzip file.
bool isGzip(std::span<const std::byte> first);

enum class UnpackTo {
  kMemory,  // anonymous memory
  // An unlinked file in the directory for temporary files ($TMPDIR or /tmp), whose pages the kernel may write out. No
  // other process can open it, and it takes no space once the result is destroyed.
  kTemporaryFile
};

// gzip cannot pack data into less than about a thousandth of its size, so a larger ratio, with kGunzipFree bytes to
// spare, comes from a file that was made to fill the memory.
inline constexpr uint64_t kMaxGunzipRatio = 1000;
inline constexpr uint64_t kGunzipFree = 1 << 20;

// Decompresses one layer of gzip. throttle: is charged for the unpacked bytes; may be null. Throws Error:
//   kCorrupt      damaged or truncated data, no data, more than max_bytes bytes, or more than kMaxGunzipRatio times the
//                 bytes of `packed`
//   kExhausted    no memory or disk space is left
std::shared_ptr<const UnpackedFile> gunzip(std::span<const std::byte> packed, std::string_view source,
                                           uint64_t max_bytes, UnpackTo to, BackgroundThrottle* throttle = nullptr);

}  // namespace chorus
