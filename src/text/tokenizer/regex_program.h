// A parsed pattern as a list of operations.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <vector>

#include "text/tokenizer/regex_syntax.h"

namespace chorus::regex {

struct Operation {
  enum class Kind : uint8_t {
    kSet,      // one character of sets[a]
    kSplit,    // goes on at a, or else at b; c: what they begin with, an index into Program::branches or kNoLimit
    kJump,     // to a
    kLoop,     // characters of sets[a], at most b; with b == kNoLimit the run is remembered in slot c
    kExactly,  // b characters of sets[a]
    kAssert,   // a: Assertion
    kLook,  // the operations up to kDone match here, or after stepping back b characters; c: they must not. Goes on at
            // a
    kAtomic,  // the operations up to kDone, whose alternatives are then dropped; goes on at a
    kDone,    // the end of a kLook, of a kAtomic, or of the pattern
  };
  Kind kind;
  Greed greed = Greed::kGreedy;  // of kLoop
  uint32_t a = 0, b = 0, c = 0;
  uint32_t memo = 0;  // of kSplit and kLoop: which of the states that are remembered, counted from 0
};

// Bytes that the branches of a split may begin with; a branch that may take none is open.
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
  // Bytes that a match may begin with; not used when the pattern can match the empty text.
  std::bitset<256> first_bytes;
  bool can_be_empty = false;

  size_t memoryBytes() const;
};

// Nothing when the program would be too large.
std::optional<Program> compile(Pattern pattern);

}  // namespace chorus::regex
