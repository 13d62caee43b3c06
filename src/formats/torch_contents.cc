#include "formats/torch_contents.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/git_lfs.h"
#include "base/utf8.h"
#include "formats/zip_directory.h"

namespace chorus {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kZipMagic("PK\x03\x04", 4);
constexpr std::string_view kLegacyMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kLegacyProtocol = 1001;
constexpr size_t kTarMagicAt = 257;
constexpr uint64_t kMaxZipVersion = 10;

std::string_view asText(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// --- Zip archives, uncompressed: NAME/data.pkl, NAME/data/KEY, NAME/version, NAME/byteorder and other entries.

class ZipReader {
 public:
  ZipReader(const PartialBytes& bytes, std::string_view source)
      : source_(source), file_bytes_(bytes.size()), archive_(bytes, source) {
    const auto& entries = archive_.entries();
    if (entries.empty()) corrupt("the archive is empty");
    const std::string_view prefix = entries[0].name.substr(0, entries[0].name.find('/') + 1);
    if (prefix.empty()) corrupt("its entries have no common folder");
    for (const ZipEntry& entry : entries) {
      if (!entry.name.starts_with(prefix)) corrupt("its entries have no common folder");
      records_.emplace(entry.name.substr(prefix.size()), &entry);
    }
  }

  // zeros: memory of the file's size that is used as every storage, instead of its values; empty: the values are read.
  TorchContents read(Bytes zeros, OtherClasses others) {
    if (zeros.empty()) archive_.readAll();
    checkRecords();
    const auto data = find("data.pkl");
    if (!data) fail(ErrorCode::kCorrupt, "{}: a zip archive without data.pkl, not a file of torch.save", source_);
    TorchObjects objects(source_, 5, others);
    Pickle pickle = readPickle(asText(*data), source_, objects);
    if (pickle.size != data->size()) corrupt("bytes follow its pickle");
    std::vector<Bytes> storages;
    for (const TorchStorage& storage : objects.storages()) {
      const auto it = records_.find("data/" + storage.key);
      if (it == records_.end()) corrupt(fmt::format("storage '{}' is missing", storage.key));
      const ZipEntry& entry = *it->second;
      if (entry.size != storage.bytes()) {
        corrupt(
            fmt::format("storage '{}' has {} bytes, its tensors expect {}", storage.key, entry.size, storage.bytes()));
      }
      if (entry.size > file_bytes_) corrupt(fmt::format("storage '{}' is larger than the file", storage.key));
      storages.push_back(zeros.empty() ? archive_.read(entry) : zeros.first(entry.size));
    }
    checkAllIsUsed(data->size(), storages);
    return {std::move(objects), std::move(pickle), std::move(storages)};
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: damaged PyTorch file: {}", source_, reason);
  }

  // torch.save writes nothing large besides the pickle and its storages. Other bytes, of entries or between them, would
  // be read into memory for nothing, and they take no space on disk if they are a hole.
  void checkAllIsUsed(size_t pickle_bytes, std::span<const Bytes> storages) const {
    constexpr uint64_t kFree = 1 << 20, kOfEachEntry = 16 << 10;  // headers and alignment
    uint64_t used = pickle_bytes;
    for (const Bytes& storage : storages) used += storage.size();
    const uint64_t unused = file_bytes_ - std::min<uint64_t>(used, file_bytes_);
    if (unused > kFree + kOfEachEntry * records_.size()) {
      corrupt(fmt::format("{} of its {} bytes belong to none of its tensors", unused, file_bytes_));
    }
  }

  std::optional<Bytes> find(const std::string& name) const {
    const auto it = records_.find(name);
    return it == records_.end() ? std::nullopt : std::optional(archive_.read(*it->second));
  }

  void checkRecords() const {
    if (find("constants.pkl")) {
      fail(ErrorCode::kUnsupported, "{}: a TorchScript program; save the model's state_dict", source_);
    }
    const auto version = find("version");
    const auto number = version ? decimal(asText(*version)) : std::nullopt;
    if (!number || *number < 1 || *number > kMaxZipVersion) corrupt("its version is missing or unknown");
    if (const auto order = find("byteorder"); order && asText(*order) != "little") {
      if (asText(*order) != "big") corrupt("its byte order is unknown");
      fail(ErrorCode::kUnsupported, "{}: written on a big-endian machine; save it on a little-endian one", source_);
    }
    // PyTorch parses these entries too and refuses a file in which they are damaged.
    if (const auto alignment = find(".storage_alignment"); alignment && !decimal(asText(*alignment))) {
      corrupt("its alignment is not a number");
    }
    if (const auto id = find(".data/serialization_id"); id && !isUtf8(asText(*id)))
      corrupt("its serialization id is not UTF-8 text");
  }

  static std::optional<uint64_t> decimal(std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string_view::npos) {
      return std::nullopt;
    }
    return std::stoull(std::string(text));
  }

  std::string source_;
  size_t file_bytes_;
  ZipArchive archive_;
  std::map<std::string, const ZipEntry*, std::less<>> records_;  // by name without the common folder
};

// --- Format before PyTorch 1.6: five pickles (a magic number, a version, a description of the machine, the object, the
// list of storage keys), then for each storage 8 bytes with its number of elements and the bytes of its elements.

class LegacyReader {
 public:
  // zeros: as of ZipReader::read().
  LegacyReader(PartialBytes bytes, Bytes zeros, std::string_view source)
      : bytes_(std::move(bytes)), zeros_(zeros), source_(source) {}

  TorchContents read(OtherClasses others) {
    TorchObjects none(source_, 6);
    const Pickle magic = next(none);
    if (!magic.root.is(PickleKind::kLong) || magic.heap.text(magic.root) != kLegacyMagic) {
      fail(ErrorCode::kCorrupt, "{}: a pickle that torch.save did not write", source_);
    }
    const Pickle protocol = next(none);
    if (!protocol.root.is(PickleKind::kInt) || protocol.root.integer != kLegacyProtocol) {
      corrupt("its version is unknown");
    }
    checkMachine(next(none));

    TorchObjects objects(source_, 6, others);
    Pickle pickle = next(objects);
    const Pickle keys = next(none);
    if (!keys.root.is(PickleKind::kList)) corrupt("its list of storages is damaged");
    std::vector<Bytes> storages(objects.storages().size());
    std::vector<bool> seen(storages.size());
    for (const PickleValue& key : keys.heap.items(keys.root)) {
      const TorchStorage* storage = key.is(PickleKind::kText) ? objects.findStorage(keys.heap.text(key)) : nullptr;
      if (storage == nullptr) corrupt("its list of storages is damaged");
      const auto index = static_cast<size_t>(storage - objects.storages().data());
      if (seen[index]) corrupt("its list of storages is damaged");
      seen[index] = true;
      storages[index] = storageBytes(*storage);
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      if (!seen[i]) corrupt(fmt::format("storage '{}' is missing", objects.storages()[i].key));
    }
    if (at_ != bytes_.size()) corrupt("bytes follow its last storage");
    return {std::move(objects), std::move(pickle), std::move(storages)};
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: damaged PyTorch file: {}", source_, reason);
  }

  Pickle next(TorchObjects& objects) {
    Pickle pickle = readPickle(bytes_.part(at_, bytes_.size() - at_), source_, objects);
    at_ += pickle.size;
    return pickle;
  }

  void checkMachine(const Pickle& machine) const {
    if (!machine.root.isDict()) corrupt("its description of the machine is damaged");
    const auto& items = machine.heap.items(machine.root);
    for (size_t i = 0; i < items.size(); i += 2) {
      if (items[i].is(PickleKind::kText) && machine.heap.text(items[i]) == "little_endian" &&
          !(items[i + 1].is(PickleKind::kBool) && items[i + 1].integer == 1)) {
        fail(ErrorCode::kUnsupported, "{}: written on a big-endian machine; save it on a little-endian one", source_);
      }
    }
  }

  Bytes storageBytes(const TorchStorage& storage) {
    constexpr size_t kCountBytes = 8;
    if (bytes_.size() - at_ < kCountBytes) corrupt("it is cut off");
    uint64_t count = storage.elements;
    // The numbers lie between the values, so reading them with a header would read pieces of the whole file.
    if (zeros_.empty()) std::memcpy(&count, bytes_.read(at_, kCountBytes).data(), kCountBytes);
    at_ += kCountBytes;
    if (count != storage.elements) {
      corrupt(fmt::format("storage '{}' has {} elements, its tensors expect {}", storage.key, count, storage.elements));
    }
    if (bytes_.size() - at_ < storage.bytes()) corrupt("it is cut off");
    const Bytes result = zeros_.empty() ? bytes_.read(at_, storage.bytes()) : zeros_.first(storage.bytes());
    at_ += result.size();
    return result;
  }

  PartialBytes bytes_;
  Bytes zeros_;
  std::string source_;
  size_t at_ = 0;
};

// Copies a view's elements into row-major order.
void gather(const TorchTensor& tensor, Bytes storage, std::byte* out) {
  const size_t size = dtypeSize(tensor.dtype);
  const size_t rank = tensor.shape.size();
  std::vector<int64_t> index(rank, 0);
  uint64_t at = tensor.offset;
  for (uint64_t left = tensor.elements(); left > 0; --left) {
    std::memcpy(out, storage.data() + at * size, size);
    out += size;
    for (size_t i = rank; i-- > 0;) {
      at += static_cast<uint64_t>(tensor.strides[i]);
      if (++index[i] < tensor.shape[i]) break;
      at -= static_cast<uint64_t>(tensor.strides[i]) * static_cast<uint64_t>(tensor.shape[i]);
      index[i] = 0;
    }
  }
}
}  // namespace

bool isTorchArchive(Bytes first) { return asText(first).starts_with(kZipMagic); }

bool isTorchPickle(Bytes first) { return asText(first).starts_with('\x80'); }

TorchContents readTorchContents(Bytes bytes, std::string_view source, OtherClasses others) {
  const std::string_view text = asText(bytes);
  if (isTorchArchive(bytes)) return ZipReader(PartialBytes(bytes), source).read({}, others);
  if (isTorchPickle(bytes)) return LegacyReader(PartialBytes(bytes), {}, source).read(others);
  if (text.size() > kTarMagicAt && text.substr(kTarMagicAt).starts_with("ustar")) {
    fail(ErrorCode::kUnsupported, "{}: a tar file of PyTorch before 0.1.10; load it there and save it again", source);
  }
  refuseGitLfsPointer(bytes, source);
  fail(ErrorCode::kCorrupt, "{}: not a PyTorch file", source);
}

TorchContents readTorchHeader(const PartialBytes& file, std::string_view source, Bytes zeros) {
  if (isTorchPickle(file.read(0, std::min<size_t>(file.size(), 1)))) {
    return LegacyReader(file, zeros, source).read(OtherClasses::kRefused);
  }
  return ZipReader(file, source).read(zeros, OtherClasses::kRefused);
}

std::vector<std::pair<std::string_view, PickleValue>> namedItems(const PickleHeap& heap,
                                                                 const PickleValue& dictionary) {
  std::vector<std::pair<std::string_view, PickleValue>> result;
  // Maps, not hash tables, because hostile names could collide. A pickle refers to one text any number of times with a
  // few bytes, so a text is compared with others only the first time.
  std::map<std::string_view, size_t> place;
  std::map<uint32_t, size_t> place_of_text;  // by PickleValue::index
  const auto& items = heap.items(dictionary);
  for (size_t i = 0; i < items.size(); i += 2) {
    if (!items[i].is(PickleKind::kText)) continue;
    const auto [known, is_new_text] = place_of_text.emplace(items[i].index, result.size());
    if (is_new_text) {
      const std::string_view name = heap.text(items[i]);
      known->second = place.emplace(name, result.size()).first->second;
      if (known->second == result.size()) result.emplace_back(name, PickleValue());
    }
    result[known->second].second = items[i + 1];
  }
  return result;
}

TensorView TorchViews::view(const TorchContents& contents, const TorchTensor& tensor, std::string_view name) {
  const Bytes storage = contents.storages[tensor.storage];
  const uint64_t size = checkedMul(tensor.elements(), dtypeSize(tensor.dtype), "tensor");
  if (tensor.isContiguous()) {
    return {tensor.dtype, tensor.shape, storage.subspan(tensor.offset * dtypeSize(tensor.dtype), size)};
  }
  if (size > storage.size() || size > file_bytes_ - copied_) {
    fail(ErrorCode::kUnsupported, "{}: tensor '{}' is a view that repeats its storage; save it with .contiguous()",
         source_, name);
  }
  copied_ += size;
  if (!zeros_.empty()) return {tensor.dtype, tensor.shape, zeros_.first(size)};
  copies_->push_back(std::make_unique_for_overwrite<std::byte[]>(size));
  gather(tensor, storage, copies_->back().get());
  return {tensor.dtype, tensor.shape, {copies_->back().get(), size}};
}

}  // namespace chorus
