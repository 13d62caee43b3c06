#include "formats/zip_directory.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace chorus {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kZip64EndBytes = 56, kZip64LocatorBytes = 20;
constexpr uint16_t kEncrypted = 0x0001 | 0x0040 | 0x2000;
constexpr uint16_t kPatch = 0x0020;
constexpr uint32_t kFolder = 0x10;  // a bit of the external attributes
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kIn64Bits = 0xffffffff;
constexpr uint16_t kStoredMethod = 0, kDeflated = 8;
constexpr uint8_t kNewestVersion = 63;  // of the format, 6.3; Python refuses newer ones too

}  // namespace

struct ZipArchive::Directory {
  uint64_t entries;
  uint64_t offset;
  uint64_t size;
};

ZipArchive::ZipArchive(PartialBytes bytes, std::string_view source, ZipMethods methods)
    : bytes_(std::move(bytes)), source_(source), methods_(methods) {
  const Directory directory = findDirectory();
  if (directory.entries > directory.size / kCentralBytes)
    corrupt("its directory is shorter than its number of entries");
  directory_begin_ = directory.offset;
  std::set<std::string> seen;
  uint64_t at = directory.offset;
  const uint64_t end = directory.offset + directory.size;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const ZipEntry entry = centralEntry(at, end);
    std::string lower(entry.name);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!seen.insert(std::move(lower)).second) corrupt("two entries have one name");
    entries_.push_back(entry);
  }
  if (at != end) corrupt("its directory has bytes beyond its entries");
}

std::span<const std::byte> ZipArchive::read(const ZipEntry& entry) const {
  return bytes_.read(dataBegin(entry), entry.stored_size);
}

std::vector<std::span<const std::byte>> ZipArchive::readAll() const {
  std::vector<std::span<const std::byte>> bytes;
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const ZipEntry& entry : entries_) {
    const uint64_t begin = dataBegin(entry);
    places.emplace_back(entry.header, begin + entry.stored_size);
    bytes.push_back(bytes_.read(begin, entry.stored_size));
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].first < places[i - 1].second) corrupt("entries overlap");
  }
  return bytes;
}

void ZipArchive::corrupt(std::string_view reason) const {
  fail(ErrorCode::kCorrupt, "{}: not a whole zip archive: {}", source_, reason);
}

// Reads a little-endian number at an offset that the caller has checked.
template <typename T>
T ZipArchive::get(uint64_t at) const {
  const auto bytes = bytes_.read(at, sizeof(T));
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(std::to_integer<T>(bytes[i]) << (8 * i));
  return value;
}

std::string_view ZipArchive::text(uint64_t at, size_t size) const {
  return {reinterpret_cast<const char*>(bytes_.read(at, size).data()), size};
}

// Offset of the last end record. Its comment must reach the end of the file.
uint64_t ZipArchive::findEnd() const {
  if (bytes_.size() < kEndBytes) corrupt("too short");
  const uint64_t last = bytes_.size() - kEndBytes;
  const uint64_t first = last - std::min<uint64_t>(last, 0xffff);
  for (uint64_t at = last + 1; at-- > first;) {
    if (get<uint32_t>(at) != kEnd) continue;
    if (at + kEndBytes + get<uint16_t>(at + 20) != bytes_.size()) corrupt("bytes follow its end");
    return at;
  }
  corrupt("its end is missing; the file is truncated");
}

ZipArchive::Directory ZipArchive::findDirectory() const {
  const uint64_t end = findEnd();
  if (get<uint16_t>(end + 4) != 0 || get<uint16_t>(end + 6) != 0) {
    fail(ErrorCode::kUnsupported, "{}: multi-part zip archives are not supported", source_);
  }
  Directory directory = {get<uint16_t>(end + 10), get<uint32_t>(end + 16), get<uint32_t>(end + 12)};
  if (get<uint16_t>(end + 8) != directory.entries) corrupt("its counts of entries differ");
  uint64_t directory_end = end;
  if (end >= kZip64LocatorBytes && get<uint32_t>(end - kZip64LocatorBytes) == kZip64Locator) {
    const uint64_t record = get<uint64_t>(end - kZip64LocatorBytes + 8);
    directory = zip64Directory(record, end - kZip64LocatorBytes, directory);
    directory_end = record;
  }
  if (directory.offset > directory_end || directory_end - directory.offset != directory.size) {
    corrupt("its directory does not lie where its end says");
  }
  return directory;
}

ZipArchive::Directory ZipArchive::zip64Directory(uint64_t record, uint64_t locator, const Directory& plain) const {
  if (get<uint32_t>(locator + 4) != 0 || get<uint32_t>(locator + 16) != 1) {
    fail(ErrorCode::kUnsupported, "{}: multi-part zip archives are not supported", source_);
  }
  if (!has(record, kZip64EndBytes) || record + kZip64EndBytes != locator || get<uint32_t>(record) != kZip64End ||
      get<uint64_t>(record + 4) != kZip64EndBytes - 12 || get<uint32_t>(record + 16) != 0 ||
      get<uint32_t>(record + 20) != 0) {
    corrupt("its zip64 end record is damaged");
  }
  const Directory directory = {get<uint64_t>(record + 32), get<uint64_t>(record + 48), get<uint64_t>(record + 40)};
  const auto agrees = [](uint64_t narrow, uint64_t limit, uint64_t wide) { return narrow == limit || narrow == wide; };
  if (get<uint64_t>(record + 24) != directory.entries || !agrees(plain.entries, 0xffff, directory.entries) ||
      !agrees(plain.offset, kIn64Bits, directory.offset) || !agrees(plain.size, kIn64Bits, directory.size)) {
    corrupt("its two end records differ");
  }
  return directory;
}

// Reads the entry at offset `at` and advances `at` to the next entry.
ZipEntry ZipArchive::centralEntry(uint64_t& at, uint64_t end) const {
  if (end - at < kCentralBytes || get<uint32_t>(at) != kCentralHeader) corrupt("its directory is damaged");
  const uint16_t name_size = get<uint16_t>(at + 28), extra_size = get<uint16_t>(at + 30);
  const uint64_t total = kCentralBytes + uint64_t{name_size} + extra_size + get<uint16_t>(at + 32);
  if (end - at < total) corrupt("its directory is damaged");
  ZipEntry entry = {.name = text(at + kCentralBytes, name_size),
                    .size = get<uint32_t>(at + 24),
                    .stored_size = get<uint32_t>(at + 20),
                    .header = get<uint32_t>(at + 42),
                    .crc32 = get<uint32_t>(at + 16)};
  if (name_size == 0 || entry.name.find('\0') != std::string_view::npos) corrupt("an entry has no proper name");
  if ((get<uint16_t>(at + 8) & kEncrypted) != 0) {
    fail(ErrorCode::kUnsupported, "{}: an encrypted zip archive", source_);
  }
  // Other readers do not treat these two as plain stored bytes, so they are refused.
  if ((get<uint16_t>(at + 8) & kPatch) != 0 || (get<uint32_t>(at + 38) & kFolder) != 0) {
    corrupt("an entry is a patch or a folder");
  }
  if (const auto version = get<uint8_t>(at + 6); version > kNewestVersion) {
    fail(ErrorCode::kUnsupported, "{}: entry '{}' needs version {}.{} of the zip format", source_, entry.name,
         version / 10, version % 10);
  }
  const auto method = get<uint16_t>(at + 10);
  entry.deflated = method == kDeflated && methods_ == ZipMethods::kStoredOrDeflated;
  if (method != kStoredMethod && !entry.deflated) {
    fail(ErrorCode::kUnsupported, "{}: entry '{}' is compressed by method {}; save the file again without compression",
         source_, entry.name, method);
  }
  if (get<uint16_t>(at + 34) != 0)
    fail(ErrorCode::kUnsupported, "{}: multi-part zip archives are not supported", source_);
  widen(at + kCentralBytes + name_size, extra_size, entry);
  if (!entry.deflated && entry.stored_size != entry.size) corrupt("an entry's two sizes differ");
  at += total;
  return entry;
}

// Replaces sizes and offsets that do not fit in 32 bits by the values in the zip64 extra field, which has them in the
// order of `fields`.
void ZipArchive::widen(uint64_t at, uint64_t size, ZipEntry& entry) const {
  uint64_t* fields[] = {&entry.size, &entry.stored_size, &entry.header};
  bool found = false;
  for (const uint64_t end = at + size; at < end;) {
    if (end - at < 4) corrupt("an entry's extra field is damaged");
    const uint16_t id = get<uint16_t>(at), length = get<uint16_t>(at + 2);
    at += 4;
    if (end - at < length) corrupt("an entry's extra field is damaged");
    if (id == kZip64Extra) {
      if (found) corrupt("an entry's extra field is damaged");
      found = true;
      uint64_t from = at;
      for (uint64_t* field : fields) {
        if (*field != kIn64Bits) continue;
        if (at + length - from < 8) corrupt("an entry's extra field is damaged");
        *field = get<uint64_t>(from);
        from += 8;
      }
    }
    at += length;
  }
  for (const uint64_t* field : fields) {
    if (!found && *field == kIn64Bits) corrupt("an entry's size is missing");
  }
}

// Offset of the entry's first byte according to its local header, which must agree with the directory.
uint64_t ZipArchive::dataBegin(const ZipEntry& entry) const {
  const uint64_t limit = directory_begin_;
  if (entry.header > limit || limit - entry.header < kLocalBytes || get<uint32_t>(entry.header) != kLocalHeader) {
    corrupt("an entry has no local header");
  }
  const uint16_t name_size = get<uint16_t>(entry.header + 26);
  const uint64_t begin = entry.header + kLocalBytes + name_size + get<uint16_t>(entry.header + 28);
  if (begin > limit || limit - begin < entry.stored_size) corrupt("an entry reaches into the directory");
  if (text(entry.header + kLocalBytes, name_size) != entry.name ||
      get<uint16_t>(entry.header + 8) != (entry.deflated ? kDeflated : kStoredMethod)) {
    corrupt("a local header differs from the directory");
  }
  return begin;
}

}  // namespace chorus
