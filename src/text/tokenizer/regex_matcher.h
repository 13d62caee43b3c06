// Matches a program against one text, in time proportional to the text wherever that is possible.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/regex_program.h"

namespace chorus::regex {

// A backtracking search. Once it has cost more than a few steps per byte, it memoizes the states (operation, position)
// that it visits, so that no state is tried twice in all searches of this text. States inside look-arounds and atomic
// groups are not memoized; the meter limits their work. Every step is charged.
class Matcher {
 public:
  // All arguments must outlive the matcher. The text must have fewer than 2^32 bytes.
  Matcher(const Program& program, Utf8View text, EncodeWork& work);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Returns the first match that begins at or after `from`, a character boundary. `from` must not decrease from call to
  // call.
  std::optional<std::pair<size_t, size_t>> search(size_t from);

 private:
  // A backtracking point. Below the entry of a loop lies a second entry, whose position is a bound: a greedy loop may
  // be left at every character from the bound to `position`; a lazy loop may take up to that many more characters.
  struct Entry {
    uint32_t operation;
    uint32_t position;
  };
  struct Run {
    uint32_t begin = 1, end = 0;  // longest run of the loop's characters; at first none
  };

  std::optional<std::pair<size_t, size_t>> find(size_t from);
  size_t run(uint32_t operation, size_t position, bool top);
  bool enterLoop(uint32_t index, size_t& position, bool top);
  std::pair<bool, bool> openBranches(const Operation& split, size_t position) const;
  void makeRuns();
  size_t loopEnd(const Operation& loop, size_t position);
  bool resume(size_t base, bool top, uint32_t& operation, size_t& position);
  bool look(const Operation& op, uint32_t body, size_t position);
  bool holds(Assertion assertion, size_t position);
  bool wordAt(size_t position);
  // Returns true if the state has been tried before; marks it as tried.
  bool visited(uint32_t memo, size_t position);
  void push(uint32_t operation, size_t position);
  void pushLoop(uint32_t operation, size_t position, size_t bound);
  void growStack();
  bool takes(uint32_t set, size_t position, size_t& end);
  void spend(uint64_t bytes) {
    spent_ += bytes;
    if (spent_ >= kChargeEvery) settle();
  }
  void settle();
  void remember();
  void forgetAt(size_t position);

  static constexpr uint64_t kChargeEvery = 4096;
  static constexpr size_t kNone = static_cast<size_t>(-1);
  static constexpr uint32_t kLazy = 0x80000000, kGreedy = 0x40000000;

  const Program& program_;
  Utf8View text_;
  EncodeWork& work_;
  uint64_t spent_ = 0;         // work that is not yet charged
  uint64_t until_remembered_;  // work that is left until memoization starts
  std::vector<Entry> stack_;
  size_t stack_bytes_ = 0;
  std::vector<Run> runs_;  // for each unlimited loop; empty before the first is entered
  size_t runs_bytes_ = 0;
  std::vector<uint64_t> memo_;  // one bit per state and position; empty before memoization
  size_t memo_bytes_ = 0;
};

}  // namespace chorus::regex
