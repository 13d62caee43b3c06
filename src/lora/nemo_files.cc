#include "lora/nemo_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "formats/gunzip.h"
#include "formats/nemo_layout.h"
#include "formats/safetensors.h"
#include "formats/tar_archive.h"
#include "formats/yaml.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// The config and the checkpoints of an unpacked archive. parse(member's bytes, its name) reads a checkpoint.
template <typename Parse>
NemoFiles readMembers(const PartialBytes& tar, const std::string& source, Parse&& parse) {
  const std::vector<TarMember> members = readTar(tar, source);
  std::vector<std::string> names;
  for (const TarMember& member : members) names.push_back(member.name);
  const NemoLayout layout = nemoLayout(names, source);
  NemoFiles files;
  files.source = source;
  files.config_source = fmt::format("{}: {}", source, layout.config);
  files.tp_size = layout.tp_size;
  files.pp_size = layout.pp_size;
  const TarMember& config = *findMember(members, layout.config);
  if (config.size > kMaxYamlBytes) {
    fail(ErrorCode::kCorrupt, "{}: has {} bytes, more than {}", files.config_source, config.size, kMaxYamlBytes);
  }
  const auto text = tar.read(config.offset, config.size);
  files.config =
      parseNemoConfig({reinterpret_cast<const char*>(text.data()), text.size()}, layout, files.config_source);
  for (const std::string& name : layout.checkpoints) {
    const TarMember& member = *findMember(members, name);
    files.shards.push_back(parse(tar.part(member.offset, member.size), fs::path(fmt::format("{}: {}", source, name))));
  }
  return files;
}

// Bytes of a file that are read to learn what it is and how large: its first and its last ones.
constexpr size_t kFewPieces = size_t{1} << 18;

// The unpacked size that the last bytes of a gzip file state; nullopt if the file is not gzip. More is not unpacked.
std::optional<size_t> unpackedSize(const PartialBytes& file) {
  uint32_t size = 0;
  if (file.size() < 2 + sizeof(size) || !isGzip(file.read(0, 2))) return std::nullopt;
  std::memcpy(&size, file.read(file.size() - sizeof(size), sizeof(size)).data(), sizeof(size));
  return size;
}

// Most bytes that the adapter's reader allocates for an archive of this size: it joins the parts of several ranks, and
// converts values.
uint64_t copiedBytes(uint64_t archive) { return checkedMul(archive, 2, "the archive"); }

}  // namespace

NemoFiles parseNemoFiles(std::span<const std::byte> bytes, const std::string& source, size_t max_bytes,
                         std::shared_ptr<const void> memory, BackgroundThrottle* throttle) {
  std::span<const std::byte> tar = bytes;
  if (isGzip(bytes)) {
    const auto unpacked = gunzip(bytes, source, max_bytes, UnpackTo::kMemory, throttle);
    tar = unpacked->bytes();
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    memory = std::make_shared<const Both>(std::move(memory), unpacked);
  }
  NemoFiles files = readMembers(PartialBytes(tar), source, [&](const PartialBytes& member, const fs::path& path) {
    return parseTensorFile(member.read(0, member.size()), path, memory);
  });
  files.bytes = bytes;
  files.memory = std::move(memory);
  return files;
}

NemoFiles readNemoFiles(FileReader& files, const std::string& name, size_t max_bytes) {
  const std::string source = files.directory().pathOf(name).string();
  size_t unpacked = max_bytes;
  uint64_t also = 0;
  if (files.reserves()) {
    const auto size = files.readParts(name, max_bytes, kFewPieces, unpackedSize);
    const size_t on_disk = files.readHead(name, 0, max_bytes).file_size;
    if (size && *size + kGunzipFree < on_disk) {
      fail(ErrorCode::kUnsupported,
           "{}: its last bytes state that it unpacks to {} bytes, fewer than it has; pack it again as one gzip stream",
           source, *size);
    }
    if (size) unpacked = std::min({unpacked, *size, on_disk * kMaxGunzipRatio + kGunzipFree});
    also = size ? checkedAdd(unpacked, copiedBytes(unpacked), source.c_str()) : copiedBytes(on_disk);
  }
  const auto whole = files.read(name, max_bytes, also);
  NemoFiles read = parseNemoFiles(whole->bytes(), source, unpacked, whole, files.throttle());
  read.load_bytes = whole->bytes().size() + also;
  return read;
}

NemoFiles readNemoHeaders(FileReader& files, const std::string& name, size_t max_bytes) {
  static constexpr size_t kFirst = 512;  // enough to see what a file is
  const auto head = files.readHead(name, kFirst, max_bytes);
  if (isGzip(head.contents->bytes())) return readNemoFiles(files, name, max_bytes);
  const std::string source = files.directory().pathOf(name).string();
  const auto parse = [](const PartialBytes& member, const fs::path& path) { return parseTorchHeader(member, path); };
  NemoFiles read = files.readParts(name, max_bytes, Safetensors::kMaxHeaderBytes,
                                   [&](const PartialBytes& tar) { return readMembers(tar, source, parse); });
  read.load_bytes = checkedAdd(head.file_size, copiedBytes(head.file_size), source.c_str());
  return read;
}

}  // namespace chorus
