// Reads MessagePack item by item, without building a tree. Source of the format: the MessagePack specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chorus {

enum class MsgpackKind : uint8_t { kNil, kBool, kInt, kFloat, kText, kBytes, kArray, kMap, kExtension };

struct MsgpackItem {
  MsgpackKind kind = MsgpackKind::kNil;
  int8_t type = 0;      // kExtension: the application's type
  uint64_t count = 0;   // kArray, kMap: items that follow. A map of n entries has 2 n: key, value, key, ...
  int64_t integer = 0;  // kBool, kInt. A number beyond int64_t is INT64_MAX
  double real = 0;      // kFloat
  std::span<const std::byte> bytes = {};  // kText, kBytes, kExtension: a view of the input

  bool is(MsgpackKind k) const { return kind == k; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

class MsgpackReader {
 public:
  // The bytes must outlive the reader and its items; source names them in errors.
  MsgpackReader(std::span<const std::byte> bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  // Reads an item. If it is an array or a map, its items are next. Throws Error(kCorrupt) if the bytes end before it
  // does, it has more items than bytes are left, or a text is not UTF-8.
  MsgpackItem next();
  // Reads past everything that is in the item. Throws the Errors of next().
  void skipInside(const MsgpackItem& item);
  bool ended() const { return at_ == bytes_.size(); }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const;
  std::span<const std::byte> take(uint64_t size);
  uint64_t number(size_t bytes);
  MsgpackItem container(MsgpackKind kind, uint64_t count);
  MsgpackItem blob(MsgpackKind kind, uint64_t size);
  MsgpackItem extension(uint64_t size);
  MsgpackItem ofNumber(uint8_t code);

  std::span<const std::byte> bytes_;
  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace chorus
