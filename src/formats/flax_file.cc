#include "formats/flax_file.h"

#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/git_lfs.h"
#include "formats/msgpack.h"
#include "formats/tensor_file.h"

namespace chorus {
namespace {

constexpr size_t kMaxLevels = 32;
// Names grow with the depth of the tree, so a small file could have very long ones.
constexpr size_t kMaxFlaxNameBytes = 256;
constexpr std::string_view kChunkedMark = "__msgpack_chunked_array__";

// Flax's extension types.
constexpr int8_t kArrayType = 1, kComplexType = 2, kScalarType = 3;

class FlaxReader {
 public:
  FlaxReader(std::span<const std::byte> bytes, std::string_view source) : reader_(bytes, source), source_(source) {}

  std::vector<FlaxArray> read() {
    const MsgpackItem root = reader_.next();
    if (!root.is(MsgpackKind::kMap)) {
      fail(ErrorCode::kUnsupported, "{}: expected a map of parameters, as flax.serialization.to_bytes writes", source_);
    }
    readMap(root, 1);
    if (!reader_.ended()) fail(ErrorCode::kCorrupt, "{}: bytes follow the map of parameters", source_);
    return std::move(arrays_);
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: '{}': {}", source_, name_, reason);
  }

  // Appends a key to the name; returns the size that it had.
  size_t enter(const MsgpackItem& key) {
    if (!key.is(MsgpackKind::kText)) corrupt("a key is not a text");
    const size_t before = name_.size();
    if (before + 1 + key.bytes.size() > kMaxFlaxNameBytes) {
      fail(ErrorCode::kUnsupported, "{}: a name of more than {} bytes: {}", source_, kMaxFlaxNameBytes, name_);
    }
    if (!name_.empty()) name_ += '/';
    name_ += key.text();
    return before;
  }

  // level: of the map, from 1.
  void readMap(const MsgpackItem& map, size_t level) {
    if (level > kMaxLevels) fail(ErrorCode::kUnsupported, "{}: maps in more than {} levels", source_, kMaxLevels);
    if (isChunked(map)) return readChunked(map);
    for (uint64_t i = 0; i < map.count; i += 2) {
      const size_t before = enter(reader_.next());
      const MsgpackItem value = reader_.next();
      if (value.is(MsgpackKind::kMap)) {
        readMap(value, level + 1);
      } else if (value.is(MsgpackKind::kExtension)) {
        FlaxArray array = arrayOf(value);
        array.name = name_;
        arrays_.push_back(std::move(array));
      } else {
        reader_.skipInside(value);
      }
      name_.resize(before);
    }
  }

  // Looks at the keys of the map that begins here.
  bool isChunked(const MsgpackItem& map) const {
    MsgpackReader ahead = reader_;
    for (uint64_t i = 0; i < map.count; i += 2) {
      const MsgpackItem key = ahead.next();
      if (key.is(MsgpackKind::kText) && key.text() == kChunkedMark) return true;
      ahead.skipInside(key);
      ahead.skipInside(ahead.next());
    }
    return false;
  }

  // An extension: the MessagePack of [shape, name of the dtype, bytes].
  FlaxArray arrayOf(const MsgpackItem& value) const {
    if (value.type == kComplexType) corrupt("a complex number is not supported");
    if (value.type != kArrayType && value.type != kScalarType) {
      fail(ErrorCode::kUnsupported, "{}: '{}': extension type {}, which Flax does not define", source_, name_,
           value.type);
    }
    MsgpackReader inner(value.bytes, source_);
    const MsgpackItem fields = inner.next();
    if (!fields.is(MsgpackKind::kArray) || fields.count != 3) corrupt("an array has other fields");
    FlaxArray array;
    const MsgpackItem shape = inner.next();
    if (!shape.is(MsgpackKind::kArray) || shape.count > kMaxTensorRank) corrupt("a shape is not a list of sizes");
    for (uint64_t i = 0; i < shape.count; ++i) array.shape.push_back(extentOf(inner.next()));
    const MsgpackItem dtype = inner.next();
    if (!dtype.is(MsgpackKind::kText) && !dtype.is(MsgpackKind::kBytes)) corrupt("a dtype is not a name");
    const auto found = dtypeFromName(dtype.text());
    if (!found || dtypeSize(*found) == 0) {
      fail(ErrorCode::kUnsupported, "{}: '{}': dtype '{}' is not supported", source_, name_, dtype.text());
    }
    array.dtype = *found;
    const MsgpackItem data = inner.next();
    if (!data.is(MsgpackKind::kBytes) && !data.is(MsgpackKind::kText)) corrupt("the values are not bytes");
    if (!inner.ended()) corrupt("bytes follow an array");
    checkSize(array, data.bytes.size());
    array.chunks.push_back(data.bytes);
    return array;
  }

  int64_t extentOf(const MsgpackItem& extent) const {
    if (!extent.is(MsgpackKind::kInt) || extent.integer < 0) corrupt("a shape is not a list of sizes");
    return extent.integer;
  }

  void checkSize(const FlaxArray& array, uint64_t bytes) const {
    const uint64_t expected = checkedMul(checkedElementCount(array.shape, "array"), dtypeSize(array.dtype), "array");
    if (bytes == expected) return;
    fail(ErrorCode::kCorrupt, "{}: '{}' has {} bytes where shape {} of {} needs {}", source_, name_, bytes,
         shapeText(array.shape), dtypeName(array.dtype), expected);
  }

  // {mark: true, "shape": {"0": extent, ...}, "chunks": {"0": array, ...}}
  void readChunked(const MsgpackItem& map) {
    FlaxArray array;
    array.name = name_;
    bool has_shape = false, has_chunks = false;
    for (uint64_t i = 0; i < map.count; i += 2) {
      const MsgpackItem key = reader_.next();
      const MsgpackItem value = reader_.next();
      if (key.is(MsgpackKind::kText) && key.text() == "shape" && !std::exchange(has_shape, true)) {
        readNumbered(value, kMaxTensorRank,
                     [&](const MsgpackItem& extent) { array.shape.push_back(extentOf(extent)); });
      } else if (key.is(MsgpackKind::kText) && key.text() == "chunks" && !std::exchange(has_chunks, true)) {
        readNumbered(value, std::numeric_limits<uint64_t>::max(), [&](const MsgpackItem& item) {
          if (!item.is(MsgpackKind::kExtension)) corrupt("a chunk is not an array");
          const FlaxArray chunk = arrayOf(item);
          if (!array.chunks.empty() && chunk.dtype != array.dtype) corrupt("its chunks have several dtypes");
          array.dtype = chunk.dtype;
          array.chunks.push_back(chunk.chunks[0]);
        });
      } else if (key.text() != kChunkedMark || !value.is(MsgpackKind::kBool)) {
        corrupt("an array in chunks has other fields");
      }
    }
    if (!has_shape || !has_chunks) corrupt("an array in chunks lacks its shape or its chunks");
    uint64_t bytes = 0;
    for (const auto& chunk : array.chunks) bytes += chunk.size();
    checkSize(array, bytes);
    arrays_.push_back(std::move(array));
  }

  // A map with the keys "0", "1", ... in this order, as Flax writes a tuple.
  template <typename F>
  void readNumbered(const MsgpackItem& map, uint64_t most, F&& fn) {
    if (!map.is(MsgpackKind::kMap) || map.count / 2 > most) corrupt("an array in chunks has other fields");
    for (uint64_t i = 0; i < map.count / 2; ++i) {
      const MsgpackItem key = reader_.next();
      uint64_t index = 0;
      const char* end = key.text().data() + key.bytes.size();
      const auto [parsed, error] = std::from_chars(key.text().data(), end, index);
      if (!key.is(MsgpackKind::kText) || error != std::errc() || parsed != end || index != i) {
        corrupt("the parts of an array in chunks are not numbered in order");
      }
      const MsgpackItem value = reader_.next();
      fn(value);
      if (value.count > 0) corrupt("an array in chunks has other fields");
    }
  }

  MsgpackReader reader_;
  std::string_view source_;
  std::string name_;
  std::vector<FlaxArray> arrays_;
};
}  // namespace

std::vector<FlaxArray> parseFlaxFile(std::span<const std::byte> bytes, std::string_view source) {
  refuseGitLfsPointer(bytes, source);
  return FlaxReader(bytes, source).read();
}

}  // namespace chorus
