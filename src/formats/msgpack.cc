#include "formats/msgpack.h"

#include <bit>

#include "base/error.h"
#include "base/utf8.h"

namespace chorus {
namespace {

MsgpackItem integerItem(int64_t value) {
  MsgpackItem item;
  item.kind = MsgpackKind::kInt;
  item.integer = value;
  return item;
}

}  // namespace

void MsgpackReader::corrupt(std::string_view reason) const {
  fail(ErrorCode::kCorrupt, "{}: not whole MessagePack: {} (byte {})", source_, reason, at_);
}

std::span<const std::byte> MsgpackReader::take(uint64_t size) {
  if (size > bytes_.size() - at_) corrupt("it is cut off");
  const auto taken = bytes_.subspan(at_, size);
  at_ += size;
  return taken;
}

// Numbers are big-endian.
uint64_t MsgpackReader::number(size_t bytes) {
  uint64_t value = 0;
  for (const std::byte b : take(bytes)) value = value << 8 | std::to_integer<uint64_t>(b);
  return value;
}

MsgpackItem MsgpackReader::container(MsgpackKind kind, uint64_t count) {
  MsgpackItem item;
  item.kind = kind;
  item.count = kind == MsgpackKind::kMap ? 2 * count : count;
  if (item.count > bytes_.size() - at_) corrupt("a container has more items than bytes are left");
  return item;
}

MsgpackItem MsgpackReader::blob(MsgpackKind kind, uint64_t size) {
  MsgpackItem item;
  item.kind = kind;
  item.bytes = take(size);
  if (kind == MsgpackKind::kText && !isUtf8(item.text())) corrupt("a text is not UTF-8");
  return item;
}

MsgpackItem MsgpackReader::extension(uint64_t size) {
  const auto type = static_cast<int8_t>(number(1));
  MsgpackItem item = blob(MsgpackKind::kExtension, size);
  item.type = type;
  return item;
}

// Integers and floating-point numbers with a size of their own.
MsgpackItem MsgpackReader::ofNumber(uint8_t code) {
  MsgpackItem item;
  switch (code) {
    case 0xca:
      item.kind = MsgpackKind::kFloat;
      item.real = std::bit_cast<float>(static_cast<uint32_t>(number(4)));
      return item;
    case 0xcb:
      item.kind = MsgpackKind::kFloat;
      item.real = std::bit_cast<double>(number(8));
      return item;
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf: {
      const uint64_t value = number(size_t{1} << (code - 0xcc));
      return integerItem(value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value));
    }
    case 0xd0:
      return integerItem(static_cast<int8_t>(number(1)));
    case 0xd1:
      return integerItem(static_cast<int16_t>(number(2)));
    case 0xd2:
      return integerItem(static_cast<int32_t>(number(4)));
    default:  // 0xd3
      return integerItem(static_cast<int64_t>(number(8)));
  }
}

MsgpackItem MsgpackReader::next() {
  const auto code = static_cast<uint8_t>(number(1));
  if (code <= 0x7f || code >= 0xe0) return integerItem(static_cast<int8_t>(code));
  if (code <= 0x8f) return container(MsgpackKind::kMap, code & 0x0f);
  if (code <= 0x9f) return container(MsgpackKind::kArray, code & 0x0f);
  if (code <= 0xbf) return blob(MsgpackKind::kText, code & 0x1f);
  MsgpackItem item;
  switch (code) {
    case 0xc0:
      return item;
    case 0xc2:
    case 0xc3:
      item.kind = MsgpackKind::kBool;
      item.integer = code - 0xc2;
      return item;
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return blob(MsgpackKind::kBytes, number(size_t{1} << (code - 0xc4)));
    case 0xc7:
    case 0xc8:
    case 0xc9:
      return extension(number(size_t{1} << (code - 0xc7)));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return extension(uint64_t{1} << (code - 0xd4));
    case 0xd9:
    case 0xda:
    case 0xdb:
      return blob(MsgpackKind::kText, number(size_t{1} << (code - 0xd9)));
    case 0xdc:
    case 0xdd:
      return container(MsgpackKind::kArray, number(size_t{2} << (code - 0xdc)));
    case 0xde:
    case 0xdf:
      return container(MsgpackKind::kMap, number(size_t{2} << (code - 0xde)));
    case 0xc1:
      corrupt("an unknown type");
    default:
      return ofNumber(code);
  }
}

void MsgpackReader::skipInside(const MsgpackItem& item) {
  // Each container asks for no more items than bytes are left, so the sum cannot overflow before the bytes end.
  for (uint64_t left = item.count; left > 0; --left) {
    const MsgpackItem inner = next();
    if (inner.count > UINT64_MAX - left) corrupt("it has too many items");
    left += inner.count;
  }
}

}  // namespace chorus
