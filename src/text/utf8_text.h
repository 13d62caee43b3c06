// Text types whose constructors check that the bytes are valid UTF-8. Code that takes a Utf8View needs no further
// check: no character extends beyond the end of the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorus {

// Non-owning view of valid UTF-8.
class Utf8View {
 public:
  struct Character {
    uint32_t code;
    uint32_t length;  // bytes, 1 to 4
  };

  constexpr Utf8View() = default;
  // Returns nullopt if the bytes aren't valid UTF-8.
  static std::optional<Utf8View> check(std::string_view bytes);

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // Whether a character begins at this offset or the text ends there.
  bool isBoundary(size_t at) const {
    return at < bytes_.size() ? (static_cast<unsigned char>(bytes_[at]) & 0xC0) != 0x80 : at == bytes_.size();
  }
  // The bytes [begin, end). Throws Error(kInternal) unless both are boundaries and in order.
  Utf8View sub(size_t begin, size_t end) const {
    if (begin > end || !isBoundary(begin) || !isBoundary(end)) failBoundary(begin, end, bytes_.size());
    return Utf8View(bytes_.substr(begin, end - begin));
  }
  Utf8View from(size_t begin) const { return sub(begin, bytes_.size()); }

  // The character that begins at this offset. Throws Error(kInternal) when none does.
  Character characterAt(size_t at) const {
    if (at >= bytes_.size() || !isBoundary(at)) failBoundary(at, at, bytes_.size());
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes_[at + i])); };
    const uint32_t first = byte(0);
    if (first < 0x80) return {first, 1};
    if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
  }
  // Offset of the character that ends at this boundary. Throws Error(kInternal) at the start and within a character.
  size_t before(size_t at) const {
    if (at == 0 || !isBoundary(at)) failBoundary(at, at, bytes_.size());
    do --at;
    while (!isBoundary(at));
    return at;
  }

 private:
  friend class Utf8Text;
  friend class ScratchText;
  explicit constexpr Utf8View(std::string_view bytes) : bytes_(bytes) {}
  [[noreturn]] static void failBoundary(size_t begin, size_t end, size_t size);

  std::string_view bytes_;
};

// Owned valid UTF-8. Appending valid text keeps it valid.
class Utf8Text {
 public:
  Utf8Text() = default;
  explicit Utf8Text(Utf8View text) : bytes_(text.bytes()) {}
  // Every maximal invalid run becomes U+FFFD.
  static Utf8Text replacingInvalid(std::string_view bytes);
  // Returns nullopt if the bytes aren't valid UTF-8.
  static std::optional<Utf8Text> check(std::string bytes);

  Utf8View view() const { return Utf8View(bytes_); }
  operator Utf8View() const { return view(); }
  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(Utf8View text) { bytes_ += text.bytes(); }
  // Appends U+FFFD if code is not a character.
  void append(uint32_t code);
  void clear() { bytes_.clear(); }
  std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Whether a number is a character: at most U+10FFFF and no surrogate.
inline bool isCharacterCode(uint32_t code) { return code < 0xD800 || (code >= 0xE000 && code < 0x110000); }

}  // namespace chorus
