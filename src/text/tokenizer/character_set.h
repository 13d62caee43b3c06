// Character sets of regular expressions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace chorus::regex {

// A set of characters. Properties are looked up in Oniguruma's tables, so that the native matcher and Oniguruma agree
// on every character.
class CharacterSet {
 public:
  void addRange(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  // Adds one of Oniguruma's character types, or all characters outside it.
  void addType(int type, bool negated) { types_.push_back({type, negated}); }
  // Adds the characters of \w outside brackets; below U+0100 they differ slightly from those of the type.
  void addWord(bool negated) { types_.push_back({kWordOperation, negated}); }
  void addSet(CharacterSet set) { sets_.push_back(std::move(set)); }
  void negate() { negated_ = true; }
  // Must be called once, after the last change.
  void prepare();

  bool contains(uint32_t code) const {
    return code < 128 ? (ascii_[code / 64] >> (code % 64) & 1) != 0 : evaluate(code);
  }
  // Cost of testing one character beyond ASCII, in bytes of work.
  uint32_t cost() const { return cost_; }
  bool operator==(const CharacterSet&) const = default;

 private:
  static constexpr int kWordOperation = -1;
  struct Range {
    uint32_t first, last;
    bool operator==(const Range&) const = default;
  };
  struct Type {
    int type;
    bool negated;
    bool operator==(const Type&) const = default;
  };
  bool evaluate(uint32_t code) const;
  static bool hasType(uint32_t code, int type);

  std::vector<Range> ranges_;
  std::vector<Type> types_;
  std::vector<CharacterSet> sets_;
  bool negated_ = false;
  std::array<uint64_t, 2> ascii_{};
  uint32_t cost_ = 0;
};

}  // namespace chorus::regex
