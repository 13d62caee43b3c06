// A regular expression compiled to a list of operations.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <vector>

#include "text/tokenizer/regex_syntax.h"

namespace chorus::regex {

struct Operation {
  enum class Kind : uint8_t {
    kSet,      // matches one character of sets[a]
    kSplit,    // continues at a, or else at b; c: index of their first bytes in Program::branches, or kNoLimit
    kJump,     // continues at a
    kLoop,     // matches at most b characters of sets[a]; if b == kNoLimit, the run is cached in slot c
    kExactly,  // matches b characters of sets[a]
    kAssert,   // a: Assertion
    kLook,     // the operations up to kDone must match here or b characters back (c: must not); continues at a
    kAtomic,   // matches the operations up to kDone and drops their alternatives; continues at a
    kDone,     // the end of a kLook, of a kAtomic, or of the pattern
  };
  Kind kind;
  Greed greed = Greed::kGreedy;  // for kLoop
  uint32_t a = 0, b = 0, c = 0;
  uint32_t memo = 0;  // for kSplit and kLoop: index of its memoization state, from 0
};

// The bytes with which the branches of a split may begin. A branch is open if it may consume no byte.
struct Branches {
  std::bitset<256> a, b;
  bool a_open = false, b_open = false;
};

struct Program {
  std::vector<Operation> operations;
  std::vector<CharacterSet> sets;
  std::vector<Branches> branches;
  uint32_t memo_states = 0;
  uint32_t loops = 0;  // slots of kLoop
  // The bytes with which a match may begin; not used if the pattern can match the empty text.
  std::bitset<256> first_bytes;
  bool can_be_empty = false;

  size_t memoryBytes() const;
};

// Returns nullopt if the program would be too large.
std::optional<Program> compile(Pattern pattern);

}  // namespace chorus::regex
