#include "text/tokenizer/library_characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "text/tokenizer/library_characters_table.h"

namespace chorus::library {
namespace {

// The list holds the characters at which the class begins and ends in turn.
bool isBetween(std::span<const uint32_t> toggles, uint32_t code) {
  return (std::upper_bound(toggles.begin(), toggles.end(), code) - toggles.begin()) % 2 != 0;
}

template <const auto& kToggles>
bool isIn(uint32_t code) {
  static const std::array<bool, 128> kAscii = [] {
    std::array<bool, 128> table{};
    for (uint32_t c = 0; c < table.size(); ++c) table[c] = isBetween(kToggles, c);
    return table;
  }();
  return code < kAscii.size() ? kAscii[code] : isBetween(kToggles, code);
}
}  // namespace

bool isControl(uint32_t code) { return isIn<kControl>(code); }
bool isNonspacingMark(uint32_t code) { return isIn<kNonspacingMark>(code); }
bool isMark(uint32_t code) { return isIn<kMark>(code); }
bool isPunctuation(uint32_t code) { return isIn<kPunctuation>(code); }
bool isNumber(uint32_t code) { return isIn<kNumber>(code); }
bool isUnknownToNormalForms(uint32_t code) { return isIn<kUnknownToNormalForms>(code); }
bool isWord(uint32_t code) { return isIn<kWord>(code); }

uint32_t lowercaseOf(uint32_t code) {
  // The pairs of the table are newer than some versions of utf8proc.
  const auto* newer = std::lower_bound(std::begin(kUpper), std::end(kUpper), code);
  if (newer != std::end(kUpper) && *newer == code) return kLower[newer - std::begin(kUpper)];
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

uint32_t scriptOf(uint32_t code) {
  const auto next = std::upper_bound(std::begin(kScripts), std::end(kScripts), code << 8 | 0xFF);
  return next[-1] & 0xFF;
}

}  // namespace chorus::library
