#include "formats/gunzip.h"

#include <archive_entry.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/background_throttle.h"
#include "base/cpu_features.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/unnamed_file.h"
#include "formats/libarchive.h"

namespace chorus {
namespace {

Descriptor makeUnpackedFile(UnpackTo to, std::string_view source) {
  if (to == UnpackTo::kMemory) {
    Descriptor memory(::memfd_create("chorus-unpacked", MFD_CLOEXEC));
    if (!memory)
      fail(ErrorCode::kExhausted, "{}: no memory to unpack it: {}", source, std::generic_category().message(errno));
    return memory;
  }
  return makeUnnamedFile(source);
}

void appendUnpacked(int file, std::span<const std::byte> bytes, UnpackTo to, std::string_view source) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      fail(ErrorCode::kExhausted, "{}: it cannot be unpacked: {}{}", source, std::generic_category().message(errno),
           to == UnpackTo::kTemporaryFile ? "; set TMPDIR to a directory with more space" : "");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

}  // namespace

UnpackedFile::UnpackedFile(int descriptor, size_t size) : size_(size) {
  if (size == 0) return;
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) fail(ErrorCode::kExhausted, "no address space for {} unpacked bytes", size);
  data_ = static_cast<const std::byte*>(at);
}

UnpackedFile::~UnpackedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

bool isGzip(std::span<const std::byte> first) {
  return first.size() >= 2 && first[0] == std::byte{0x1f} && first[1] == std::byte{0x8b};
}

std::shared_ptr<const UnpackedFile> gunzip(std::span<const std::byte> packed, std::string_view source,
                                           uint64_t max_bytes, UnpackTo to, BackgroundThrottle* throttle) {
  const auto corrupt = [&](const char* reason) {
    fail(ErrorCode::kCorrupt, "{}: damaged gzip file: {}", source, reason != nullptr ? reason : "it is no gzip file");
  };
  const ArchiveReader reader(archive_read_new());
  if (reader == nullptr) throw std::bad_alloc();
  // The format and the one filter are set here: libarchive would otherwise unpack any number of layers.
  archive_read_append_filter(reader.get(), ARCHIVE_FILTER_GZIP);
  archive_read_set_format(reader.get(), ARCHIVE_FORMAT_RAW);
  archive_entry* entry = nullptr;
  if (!isGzip(packed) || archive_read_open_memory(reader.get(), packed.data(), packed.size()) != ARCHIVE_OK ||
      archive_read_next_header(reader.get(), &entry) != ARCHIVE_OK) {
    corrupt(archive_error_string(reader.get()));
  }
  const uint64_t most_by_ratio = packed.size() > UINT64_MAX / kMaxGunzipRatio - kGunzipFree
                                     ? UINT64_MAX
                                     : packed.size() * kMaxGunzipRatio + kGunzipFree;
  constexpr uint64_t kCheckEvery = uint64_t{64} << 20;
  const Descriptor file = makeUnpackedFile(to, source);
  uint64_t size = 0;
  while (true) {
    const void* block = nullptr;
    size_t bytes = 0;
    la_int64_t offset = 0;
    const int result = archive_read_data_block(reader.get(), &block, &bytes, &offset);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK) corrupt(archive_error_string(reader.get()));
    if (bytes > max_bytes - size) {
      fail(ErrorCode::kCorrupt, "{}: it unpacks to more than {} bytes, the most that is expected", source, max_bytes);
    }
    size += bytes;
    // Writing to memory does not fail when memory runs out: the kernel ends the process.
    if (to == UnpackTo::kMemory && size / kCheckEvery != (size - bytes) / kCheckEvery &&
        availableMemory() < 2 * kCheckEvery) {
      fail(ErrorCode::kExhausted, "{}: too little memory is free to unpack it", source);
    }
    if (size > most_by_ratio) {
      fail(ErrorCode::kCorrupt, "{}: it unpacks to more than {} times its size; it is refused as a decompression bomb",
           source, kMaxGunzipRatio);
    }
    appendUnpacked(file.get(), {static_cast<const std::byte*>(block), bytes}, to, source);
    chargeThrottle(throttle, bytes);
  }
  if (size == 0) corrupt("it holds no data");
  return std::make_shared<const UnpackedFile>(file.get(), size);
}

}  // namespace chorus
