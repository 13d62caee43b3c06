#include "formats/npz.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/git_lfs.h"
#include "formats/inflate.h"

namespace chorus {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kSuffix = ".npy";
// Large enough that calls of zlib and sinks cost nothing, small enough for the second-level cache.
constexpr size_t kStoredPieceBytes = size_t{256} << 10;

}  // namespace

bool NpzFile::isNpz(Bytes first) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  return text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06");
}

NpzFile::NpzFile(Bytes bytes, std::string_view source)
    : source_(source), archive_(PartialBytes(bytes), source, ZipMethods::kStoredOrDeflated) {}

NpzFile NpzFile::parse(Bytes bytes, std::string_view source) {
  refuseGitLfsPointer(bytes, source);
  NpzFile file(bytes, source);
  const std::vector<Bytes> stored = file.archive_.readAll();  // checks that the entries do not overlap
  file.arrays_.reserve(stored.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    const ZipEntry& entry = file.archive_.entries()[i];
    if (!entry.name.ends_with(kSuffix)) {
      fail(ErrorCode::kUnsupported, "{}: entry '{}' is not an .npy file; save arrays only, with numpy.savez", source,
           entry.name);
    }
    const std::string where = fmt::format("{}: {}", source, entry.name);
    NpyHeader header;
    if (entry.deflated) {
      const auto limit = static_cast<size_t>(std::min<uint64_t>(entry.size, kMaxNpyHeaderBytes));
      header = parseNpyHeader(inflateBeginning(stored[i], limit, where), where);
    } else {
      header = parseNpyHeader(stored[i], where);
    }
    if (checkedAdd(header.header_bytes, header.data_bytes, "npz") != entry.size) {
      fail(ErrorCode::kCorrupt, "{}: {} bytes, its header expects {} and {} of data", where, entry.size,
           header.header_bytes, header.data_bytes);
    }
    const std::string_view name = entry.name.substr(0, entry.name.size() - kSuffix.size());
    file.arrays_.push_back({.name = std::string(name), .header = std::move(header), .entry = entry});
  }
  return file;
}

Bytes NpzFile::stored(const NpzArray& array) const {
  return archive_.read(array.entry).subspan(array.header.header_bytes);
}

void NpzFile::unpack(const NpzArray& array, FunctionRef<void(Bytes)> sink) const {
  uLong checksum = ::crc32(0, nullptr, 0);
  uint64_t skipped = 0;  // of the header
  const auto take = [&](Bytes piece) {
    checksum = ::crc32(checksum, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
    const auto skip = static_cast<size_t>(std::min<uint64_t>(array.header.header_bytes - skipped, piece.size()));
    skipped += skip;
    if (skip < piece.size()) sink(piece.subspan(skip));
  };
  const Bytes bytes = packed(array);
  if (array.entry.deflated) {
    inflate(bytes, array.entry.size, fmt::format("{}: {}", source_, array.entry.name), take);
  } else {
    for (size_t at = 0; at < bytes.size(); at += kStoredPieceBytes) {
      take(bytes.subspan(at, std::min(kStoredPieceBytes, bytes.size() - at)));
    }
  }
  if (checksum != array.entry.crc32) {
    fail(ErrorCode::kCorrupt, "{}: entry '{}' is damaged: its checksum differs", source_, array.entry.name);
  }
}

}  // namespace chorus
