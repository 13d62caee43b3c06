// Builds zip archives and pickles byte by byte, so that tests can create files that torch.save never writes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus {

template <typename T>
std::string littleEndian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  return out;
}

struct TestZip {
  struct Entry {
    std::string name;
    std::string bytes;
    uint16_t method = 0;
    uint16_t flags = 0;
    uint64_t unpacked_size = 0;  // 0: that of the bytes
    uint32_t crc32 = 0;
  };
  std::vector<Entry> entries;
  bool zip64 = false;
  std::string comment;

  std::string build() const {
    std::string out, directory;
    for (const Entry& e : entries) {
      const uint64_t unpacked = e.unpacked_size > 0 ? e.unpacked_size : e.bytes.size();
      const std::string sizes = littleEndian<uint32_t>(e.bytes.size()) + littleEndian<uint32_t>(unpacked);
      const std::string middle = littleEndian<uint16_t>(e.flags) + littleEndian<uint16_t>(e.method) +
                                 std::string(4, '\0') + littleEndian(e.crc32);
      directory += "PK\x01\x02" + littleEndian<uint32_t>(0) + middle;
      directory += zip64 ? std::string(8, '\xff') : sizes;
      directory +=
          littleEndian<uint16_t>(e.name.size()) + littleEndian<uint16_t>(zip64 ? 28 : 0) + std::string(10, '\0');
      directory += zip64 ? std::string(4, '\xff') : littleEndian<uint32_t>(out.size());
      directory += e.name;
      if (zip64) {
        directory += littleEndian<uint16_t>(1) + littleEndian<uint16_t>(24) + littleEndian<uint64_t>(unpacked) +
                     littleEndian<uint64_t>(e.bytes.size()) + littleEndian<uint64_t>(out.size());
      }
      out += "PK\x03\x04" + littleEndian<uint16_t>(0);
      out += middle;
      out += sizes;
      out += littleEndian<uint16_t>(e.name.size()) + littleEndian<uint16_t>(0);
      out += e.name;
      out += e.bytes;
    }
    const uint64_t offset = out.size(), size = directory.size(), count = entries.size();
    out += directory;
    const uint64_t record = out.size();
    if (zip64) {
      out += "PK\x06\x06" + littleEndian<uint64_t>(44) + std::string(12, '\0') + littleEndian(count) +
             littleEndian(count) + littleEndian(size) + littleEndian(offset);
      out += "PK\x06\x07" + littleEndian<uint32_t>(0) + littleEndian(record) + littleEndian<uint32_t>(1);
    }
    out += "PK\x05\x06" + littleEndian<uint32_t>(0);
    for (int i = 0; i < 2; ++i) out += littleEndian<uint16_t>(zip64 ? 0xffff : count);
    out += zip64 ? std::string(8, '\xff') : littleEndian<uint32_t>(size) + littleEndian<uint32_t>(offset);
    return out + littleEndian<uint16_t>(comment.size()) + comment;
  }
};

// Functions that return opcodes of pickle protocol 2 with their operands.
namespace pickled {
inline std::string text(std::string_view s) { return fmt::format("X{}{}", littleEndian<uint32_t>(s.size()), s); }
inline std::string number(int32_t i) { return fmt::format("J{}", littleEndian(i)); }
inline std::string global(std::string_view module, std::string_view name) {
  return fmt::format("c{}\n{}\n", module, name);
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const auto& item : items) out += item;
  return out + "t";
}
inline std::string whole(const std::string& body) { return "\x80\x02" + body + "."; }
inline std::string storage(const std::string& type, std::string_view key, int32_t elements, bool legacy = false) {
  std::vector<std::string> fields = {text("storage"), type, text(key), text("cpu"), number(elements)};
  if (legacy) fields.push_back("N");
  return tuple(fields) + "Q";
}
inline std::string numbers(const std::vector<int32_t>& values) {
  std::vector<std::string> items;
  for (const int32_t v : values) items.push_back(number(v));
  return tuple(items);
}
inline std::string tensor(const std::string& storage, int32_t offset, const std::vector<int32_t>& shape,
                          const std::vector<int32_t>& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({storage, number(offset), numbers(shape), numbers(strides), "\x89",
                global("collections", "OrderedDict") + ")R"}) +
         "R";
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}
}  // namespace pickled

}  // namespace chorus
