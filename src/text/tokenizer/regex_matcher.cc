#include "text/tokenizer/regex_matcher.h"

#include <oniguruma.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/oniguruma_types.h"

namespace chorus::regex {
namespace {

using Kind = Operation::Kind;

constexpr uint64_t kStep = WorkMeter::kRegexStep;
// Memoization starts after kPlainWork plus kPlainWorkPerByte for each byte of text.
constexpr uint64_t kPlainWorkPerByte = 256;
constexpr uint64_t kPlainWork = 16384;

bool isWord(uint32_t code) { return hasOnigurumaType(code, ONIGENC_CTYPE_WORD); }
}  // namespace

Matcher::Matcher(const Program& program, Utf8View text, EncodeWork& work)
    : program_(program), text_(text), work_(work) {
  until_remembered_ = kPlainWork + kPlainWorkPerByte * text.size();
}

Matcher::~Matcher() { work_.scratch.giveBack(stack_bytes_ + memo_bytes_ + runs_bytes_); }

void Matcher::settle() {
  const uint64_t amount = std::exchange(spent_, 0);
  work_.meter.charge(amount);
  if (until_remembered_ == 0) return;
  until_remembered_ -= std::min(until_remembered_, amount);
  if (until_remembered_ == 0) remember();
}

// Allocates the memoization table. If there is not enough scratch memory, the search continues without it.
void Matcher::remember() {
  const size_t bits = program_.memo_states * (text_.size() + 1);
  const size_t bytes = (bits + 63) / 64 * 8;
  if (bits == 0 || !work_.scratch.tryTake(bytes)) return;
  memo_bytes_ = bytes;
  work_.meter.charge(bytes);
  memo_.resize(bytes / 8);
}

bool Matcher::visited(uint32_t memo, size_t position) {
  if (memo_.empty()) return false;
  const size_t bit = memo * (text_.size() + 1) + position;
  const uint64_t mask = uint64_t{1} << (bit % 64);
  const bool seen = (memo_[bit / 64] & mask) != 0;
  memo_[bit / 64] |= mask;
  return seen;
}

// Clears the states at the end of a match: they have not failed, and the next search may begin there.
void Matcher::forgetAt(size_t position) {
  if (memo_.empty()) return;
  for (uint32_t memo = 0; memo < program_.memo_states; ++memo) {
    const size_t bit = memo * (text_.size() + 1) + position;
    memo_[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  }
  spend(program_.memo_states);
}

// While the stack grows, old and new entries are held at once. A large stack therefore grows only once, to most of the
// memory that is left.
void Matcher::growStack() {
  constexpr size_t kSmall = 4096;
  const size_t before = stack_.capacity();
  const size_t capacity =
      before < kSmall ? std::max<size_t>(64, 2 * before) : work_.scratch.left() / 4 * 3 / sizeof(Entry);
  if (capacity <= before || stack_bytes_ > 2 * kSmall * sizeof(Entry) ||
      !work_.scratch.tryTake(capacity * sizeof(Entry))) {
    fail(ErrorCode::kInvalidArgument, "a regular expression of the tokenizer goes too deep on a text of {} bytes",
         text_.size());
  }
  stack_bytes_ += capacity * sizeof(Entry);
  stack_.reserve(capacity);
  work_.scratch.giveBack(before * sizeof(Entry));
  stack_bytes_ -= before * sizeof(Entry);
}

void Matcher::push(uint32_t operation, size_t position) {
  if (stack_.size() == stack_.capacity()) growStack();
  stack_.push_back({operation, static_cast<uint32_t>(position)});
}

void Matcher::pushLoop(uint32_t operation, size_t position, size_t bound) {
  push(0, bound);
  push(operation, position);
}

bool Matcher::takes(uint32_t set, size_t position, size_t& end) {
  if (position >= text_.size()) return false;
  const auto character = text_.characterAt(position);
  const CharacterSet& characters = program_.sets[set];
  if (character.code >= 128) spend(characters.cost());
  if (!characters.contains(character.code)) return false;
  end = position + character.length;
  return true;
}

bool Matcher::wordAt(size_t position) { return position < text_.size() && isWord(text_.characterAt(position).code); }

bool Matcher::holds(Assertion assertion, size_t position) {
  const std::string_view bytes = text_.bytes();
  const bool at_end = position == text_.size();
  switch (assertion) {
    case Assertion::kLineBegin:
      return position == 0 || (bytes[position - 1] == '\n' && !at_end);
    case Assertion::kLineEnd:
      return at_end || bytes[position] == '\n';
    case Assertion::kTextBegin:
      return position == 0;
    case Assertion::kTextEnd:
      return at_end;
    case Assertion::kTextEndOrNewline:
      return at_end || (position + 1 == text_.size() && bytes[position] == '\n');
    default: {
      spend(4 * kStep);
      const bool before = position > 0 && wordAt(text_.before(position));
      return (before != wordAt(position)) == (assertion == Assertion::kWordBoundary);
    }
  }
}

bool Matcher::look(const Operation& op, uint32_t body, size_t position) {
  bool found = true;
  for (uint32_t i = 0; found && i < op.b; ++i) {
    spend(1);
    found = position > 0;
    if (found) position = text_.before(position);
  }
  found = found && run(body, position, false) != kNone;
  return found != (op.c != 0);
}

// Returns which branches of a split are possible given the next byte.
std::pair<bool, bool> Matcher::openBranches(const Operation& split, size_t position) const {
  if (split.c == kNoLimit) return {true, true};
  const Branches& branches = program_.branches[split.c];
  if (position == text_.size()) return {branches.a_open, branches.b_open};
  const auto byte = static_cast<unsigned char>(text_.bytes()[position]);
  return {branches.a_open || branches.a[byte], branches.b_open || branches.b[byte]};
}

// Most texts are short pieces that enter no loop.
void Matcher::makeRuns() {
  if (!runs_.empty()) return;
  const size_t bytes = program_.loops * sizeof(Run);
  work_.meter.charge(bytes);
  work_.scratch.take(bytes);
  runs_bytes_ = bytes;
  runs_.resize(program_.loops);
}

// End of the longest run of the loop's characters. The run is cached, because it ends at the same place for all
// positions in it.
size_t Matcher::loopEnd(const Operation& loop, size_t position) {
  const bool unlimited = loop.b == kNoLimit;
  if (unlimited) {
    makeRuns();
    const Run& known = runs_[loop.c];
    if (position >= known.begin && position <= known.end) return known.end;
  }
  size_t end = position;
  for (uint32_t count = 0; count < loop.b && takes(loop.a, end, end); ++count) spend(2);
  if (unlimited) runs_[loop.c] = {static_cast<uint32_t>(position), static_cast<uint32_t>(end)};
  return end;
}

// Moves position to where the loop is left first and pushes the alternatives; returns false if all of them have failed
// before.
bool Matcher::enterLoop(uint32_t index, size_t& position, bool top) {
  const Operation& loop = program_.operations[index];
  const bool memo = top && !memo_.empty() && loop.greed != Greed::kPossessive;
  if (memo && visited(loop.memo, position)) return false;
  if (loop.greed == Greed::kLazy) {
    pushLoop(index | kLazy, position, loop.b);
    return true;
  }
  const size_t begin = position;
  if (memo && loop.b == kNoLimit) {
    // Stop at a position where the loop was entered before: the rest of the run has been tried.
    for (size_t next = position; takes(loop.a, position, next); position = next) {
      spend(2);
      if (visited(loop.memo, next)) break;
    }
  } else {
    position = loopEnd(loop, position);
  }
  if (loop.greed == Greed::kGreedy && position > begin) {
    pushLoop((index + 1) | kGreedy, text_.before(position), begin);
  }
  return true;
}

// Backtracks to the latest alternative above `base`; returns false if there is none.
bool Matcher::resume(size_t base, bool top, uint32_t& operation, size_t& position) {
  while (stack_.size() > base) {
    Entry& entry = stack_.back();
    operation = entry.operation & ~(kLazy | kGreedy);
    position = entry.position;
    if ((entry.operation & (kLazy | kGreedy)) == 0) {
      stack_.pop_back();
      return true;
    }
    uint32_t& bound = stack_[stack_.size() - 2].position;
    if ((entry.operation & kGreedy) != 0) {
      if (entry.position > bound)
        entry.position = static_cast<uint32_t>(text_.before(entry.position));
      else
        stack_.resize(stack_.size() - 2);
      return true;
    }
    const Operation& loop = program_.operations[operation];
    spend(2);
    if (bound == 0 || !takes(loop.a, position, position) ||
        (top && loop.b == kNoLimit && visited(loop.memo, position))) {
      stack_.resize(stack_.size() - 2);
      continue;
    }
    if (bound != kNoLimit) --bound;
    entry.position = static_cast<uint32_t>(position);
    ++operation;
    return true;
  }
  return false;
}

size_t Matcher::run(uint32_t operation, size_t position, bool top) {
  const size_t base = stack_.size();
  for (;;) {
    spend(kStep);
    const Operation& op = program_.operations[operation];
    bool alive = true;
    switch (op.kind) {
      case Kind::kSet:
        alive = takes(op.a, position, position);
        ++operation;
        break;
      case Kind::kExactly:
        for (uint32_t i = 0; alive && i < op.b; ++i) {
          spend(2);
          alive = takes(op.a, position, position);
        }
        ++operation;
        break;
      case Kind::kSplit: {
        const auto [a, b] = openBranches(op, position);
        if (!a || !b) {
          alive = a || b;
          operation = a ? op.a : op.b;
          break;
        }
        if (top && visited(op.memo, position)) {
          alive = false;
          break;
        }
        push(op.b, position);
        operation = op.a;
        break;
      }
      case Kind::kJump:
        operation = op.a;
        break;
      case Kind::kLoop:
        alive = enterLoop(operation, position, top);
        ++operation;
        break;
      case Kind::kAssert:
        alive = holds(static_cast<Assertion>(op.a), position);
        ++operation;
        break;
      case Kind::kLook:
        alive = look(op, operation + 1, position);
        operation = op.a;
        break;
      case Kind::kAtomic: {
        const size_t end = run(operation + 1, position, false);
        alive = end != kNone;
        position = end;
        operation = op.a;
        break;
      }
      case Kind::kDone:
        stack_.resize(base);
        return position;
    }
    if (!alive && !resume(base, top, operation, position)) return kNone;
  }
}

std::optional<std::pair<size_t, size_t>> Matcher::search(size_t from) {
  const auto found = find(from);
  settle();
  return found;
}

std::optional<std::pair<size_t, size_t>> Matcher::find(size_t from) {
  const std::string_view bytes = text_.bytes();
  for (size_t at = from; at <= text_.size();) {
    if (!program_.can_be_empty) {
      const size_t begin = at;
      while (at < text_.size() && !program_.first_bytes[static_cast<unsigned char>(bytes[at])]) ++at;
      spend(at - begin);
      if (at == text_.size()) break;
    }
    const size_t end = run(0, at, true);
    if (end != kNone) {
      forgetAt(end);
      return std::pair(at, end);
    }
    if (at == text_.size()) break;
    at += text_.characterAt(at).length;
  }
  return std::nullopt;
}

}  // namespace chorus::regex
