// Parser of the regular expressions that Chorus matches itself: the part of Oniguruma's syntax whose meaning is
// certain.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/character_set.h"
#include "text/utf8_text.h"

namespace chorus::regex {

enum class Assertion : uint8_t {
  kLineBegin,
  kLineEnd,
  kTextBegin,
  kTextEnd,
  kTextEndOrNewline,
  kWordBoundary,
  kNoWordBoundary
};
enum class Greed : uint8_t { kGreedy, kLazy, kPossessive };
inline constexpr uint32_t kNoLimit = 0xFFFFFFFF;

struct Node {
  enum class Kind : uint8_t { kSet, kSequence, kAlternatives, kRepeat, kAtomic, kLook, kAssert };
  Kind kind = Kind::kSequence;
  Greed greed = Greed::kGreedy;          // for kRepeat
  Assertion assertion{};                 // for kAssert
  bool behind = false, negated = false;  // for kLook
  uint32_t set = 0;                      // for kSet: an index into Pattern::sets
  uint32_t min = 0, max = 0;             // for kRepeat
  std::vector<Node> parts;               // an empty sequence matches the empty text
};

struct Pattern {
  Node root;
  std::vector<CharacterSet> sets;
};

// Returns nullopt if the pattern is wrong or uses unsupported syntax: back references, subroutine calls, conditions,
// case-insensitive letters beyond ASCII, look-behind without a fixed length and the like.
std::optional<Pattern> parsePattern(Utf8View pattern);

bool canBeEmpty(const Node& node);
// Number of characters of every match of the node; nullopt if matches differ in length.
std::optional<uint32_t> fixedLength(const Node& node);

}  // namespace chorus::regex
