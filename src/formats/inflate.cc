#include "formats/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "base/error.h"

namespace chorus {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;

class Inflater {
 public:
  Inflater(std::span<const std::byte> packed, std::string_view source) : packed_(packed), source_(source) {
    constexpr int kRawWindow = -15;  // no header of zlib or gzip, a window of 32 KB
    if (::inflateInit2(&stream_, kRawWindow) != Z_OK) fail(ErrorCode::kExhausted, "{}: not enough memory", source_);
  }
  ~Inflater() { ::inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Unpacks into `out` until it is full or the stream ends. Returns the number of bytes.
  size_t read(std::span<std::byte> out) {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) {
        const size_t next = std::min<size_t>(packed_.size(), std::numeric_limits<uInt>::max());
        if (next == 0) corrupt("it is cut off");
        // zlib does not write to its input.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed_.data()));
        stream_.avail_in = static_cast<uInt>(next);
        packed_ = packed_.subspan(next);
      }
      const int status = ::inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        ended_ = true;
      } else if (status != Z_OK && !(status == Z_BUF_ERROR && stream_.avail_in == 0)) {
        corrupt("it is damaged");
      }
    }
    return out.size() - stream_.avail_out;
  }

  // Whether the stream has ended with the last of the packed bytes.
  bool endedWhole() const { return ended_ && stream_.avail_in == 0 && packed_.empty(); }

  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: not a whole deflate stream: {}", source_, reason);
  }

 private:
  std::span<const std::byte> packed_;  // not yet given to zlib
  std::string_view source_;
  z_stream stream_ = {};
  bool ended_ = false;
};
}  // namespace

void inflate(std::span<const std::byte> packed, uint64_t size, std::string_view source,
             FunctionRef<void(std::span<const std::byte>)> sink) {
  Inflater inflater(packed, source);
  const auto buffer_bytes = static_cast<size_t>(std::min<uint64_t>(size, kPieceBytes));
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::max<size_t>(buffer_bytes, 1));
  for (uint64_t left = size; left > 0;) {
    const size_t got = inflater.read({buffer.get(), static_cast<size_t>(std::min<uint64_t>(left, buffer_bytes))});
    if (got == 0) inflater.corrupt("it has fewer bytes than its entry says");
    sink({buffer.get(), got});
    left -= got;
  }
  if (inflater.read({buffer.get(), 1}) > 0) inflater.corrupt("it has more bytes than its entry says");
  if (!inflater.endedWhole()) inflater.corrupt("bytes follow its end");
}

std::vector<std::byte> inflateBeginning(std::span<const std::byte> packed, size_t count, std::string_view source) {
  std::vector<std::byte> bytes(count);
  bytes.resize(Inflater(packed, source).read(bytes));
  return bytes;
}

}  // namespace chorus
