#include "text/tokenizer/regex_program.h"

#include <utility>

namespace chorus::regex {
namespace {

using Kind = Operation::Kind;

constexpr size_t kMaxOperations = 8192;
// Number of splits for which Branches are computed.
constexpr size_t kMaxBranches = 64;

// Thrown and caught only within this file.
struct TooLarge {};

class Compiler {
 public:
  explicit Compiler(Program& program) : program_(program) {}

  void run(const Node& root) {
    emit(root);
    add({.kind = Kind::kDone});
  }

 private:
  uint32_t here() const { return static_cast<uint32_t>(program_.operations.size()); }
  uint32_t add(Operation operation) {
    if (program_.operations.size() == kMaxOperations) throw TooLarge();
    if (operation.kind == Kind::kSplit || operation.kind == Kind::kLoop) operation.memo = program_.memo_states++;
    program_.operations.push_back(operation);
    return here() - 1;
  }
  Operation& at(uint32_t index) { return program_.operations[index]; }

  void emit(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kSet:
        add({.kind = Kind::kSet, .a = node.set});
        break;
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) emit(part);
        break;
      case Node::Kind::kAlternatives:
        emitAlternatives(node);
        break;
      case Node::Kind::kRepeat:
        emitRepeat(node);
        break;
      case Node::Kind::kAtomic:
        enclose({.kind = Kind::kAtomic}, node.parts[0]);
        break;
      case Node::Kind::kLook:
        emitLook(node);
        break;
      case Node::Kind::kAssert:
        add({.kind = Kind::kAssert, .a = static_cast<uint32_t>(node.assertion)});
        break;
    }
  }

  void enclose(Operation operation, const Node& body) {
    const uint32_t opening = add(operation);
    emit(body);
    add({.kind = Kind::kDone});
    at(opening).a = here();
  }

  void emitAlternatives(const Node& node) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < node.parts.size(); ++i) {
      const bool last = i + 1 == node.parts.size();
      const uint32_t split = last ? 0 : add({.kind = Kind::kSplit});
      if (!last) at(split).a = here();
      emit(node.parts[i]);
      if (last) break;
      ends.push_back(add({.kind = Kind::kJump}));
      at(split).b = here();
    }
    for (const uint32_t end : ends) at(end).a = here();
  }

  void emitRepeat(const Node& node) {
    const Node& body = node.parts[0];
    if (body.kind == Node::Kind::kSet) return emitLoop(node, body.set);
    if (node.greed == Greed::kPossessive) {
      Node greedy = node;
      greedy.greed = Greed::kGreedy;
      return enclose({.kind = Kind::kAtomic}, greedy);
    }
    for (uint32_t i = 0; i < node.min; ++i) emit(body);
    const auto split = [&] { return add({.kind = Kind::kSplit}); };
    const auto setExit = [&](uint32_t index, uint32_t inside, uint32_t outside) {
      at(index).a = node.greed == Greed::kLazy ? outside : inside;
      at(index).b = node.greed == Greed::kLazy ? inside : outside;
    };
    if (node.max == kNoLimit) {
      const uint32_t head = split();
      emit(body);
      add({.kind = Kind::kJump, .a = head});
      setExit(head, head + 1, here());
      return;
    }
    std::vector<uint32_t> splits;
    for (uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(split());
      emit(body);
    }
    for (const uint32_t index : splits) setExit(index, index + 1, here());
  }

  void emitLoop(const Node& node, uint32_t set) {
    if (node.min > 0) add({.kind = Kind::kExactly, .a = set, .b = node.min});
    if (node.max == node.min) return;
    Operation loop{.kind = Kind::kLoop, .greed = node.greed, .a = set, .b = kNoLimit};
    if (node.max == kNoLimit)
      loop.c = program_.loops++;
    else
      loop.b = node.max - node.min;
    add(loop);
  }

  void emitLook(const Node& node) {
    const Node& body = node.parts[0];
    if (!node.behind) return enclose({.kind = Kind::kLook, .c = node.negated}, body);
    const auto look = [&](const Node& part) {
      enclose({.kind = Kind::kLook, .b = *fixedLength(part), .c = node.negated}, part);
    };
    if (body.kind != Node::Kind::kAlternatives) return look(body);
    if (node.negated) {  // none of the alternatives may match
      for (const Node& part : body.parts) look(part);
      return;
    }
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < body.parts.size(); ++i) {
      const bool last = i + 1 == body.parts.size();
      const uint32_t split = last ? 0 : add({.kind = Kind::kSplit});
      if (!last) at(split).a = here();
      look(body.parts[i]);
      if (last) break;
      ends.push_back(add({.kind = Kind::kJump}));
      at(split).b = here();
    }
    for (const uint32_t end : ends) at(end).a = here();
  }

  Program& program_;
};

// Computes the bytes with which a match from a given operation may begin; a superset where that is simpler.
class FirstBytes {
 public:
  explicit FirstBytes(const Program& program) : program_(program) {}

  // Returns true if the match may also consume no byte.
  bool find(uint32_t operation, std::bitset<256>& bytes) {
    seen_.assign(program_.operations.size(), false);
    std::vector<uint32_t> open{operation};
    while (!open.empty()) {
      const uint32_t index = open.back();
      open.pop_back();
      if (seen_[index]) continue;
      seen_[index] = true;
      const Operation& op = program_.operations[index];
      switch (op.kind) {
        case Kind::kSet:
        case Kind::kExactly:
          add(op.a, bytes);
          break;
        case Kind::kLoop:
          add(op.a, bytes);
          open.push_back(index + 1);
          break;
        case Kind::kSplit:
          open.push_back(op.a);
          open.push_back(op.b);
          break;
        case Kind::kJump:
        case Kind::kLook:
          open.push_back(op.a);
          break;
        case Kind::kAssert:
          open.push_back(index + 1);
          break;
        case Kind::kAtomic:
        case Kind::kDone:
          bytes.set();
          return true;
      }
    }
    return false;
  }

 private:
  void add(uint32_t set, std::bitset<256>& bytes) {
    for (uint32_t byte = 0; byte < 128; ++byte) bytes[byte] = bytes[byte] || program_.sets[set].contains(byte);
    for (uint32_t byte = 0xC2; byte < 256; ++byte) bytes[byte] = true;
  }

  const Program& program_;
  std::vector<bool> seen_;
};

void findBranches(Program& program) {
  FirstBytes first(program);
  for (Operation& op : program.operations) {
    if (op.kind != Kind::kSplit) continue;
    op.c = kNoLimit;
    if (program.branches.size() == kMaxBranches) continue;
    Branches branches;
    branches.a_open = first.find(op.a, branches.a);
    branches.b_open = first.find(op.b, branches.b);
    op.c = static_cast<uint32_t>(program.branches.size());
    program.branches.push_back(branches);
  }
}
}  // namespace

size_t Program::memoryBytes() const {
  size_t bytes = sizeof(Program) + operations.capacity() * sizeof(Operation) + branches.capacity() * sizeof(Branches);
  for (const CharacterSet& set : sets) bytes += sizeof(CharacterSet) + 2 * set.cost();
  return bytes;
}

std::optional<Program> compile(Pattern pattern) {
  Program program;
  program.sets = std::move(pattern.sets);
  try {
    Compiler(program).run(pattern.root);
  } catch (const TooLarge&) {
    return std::nullopt;
  }
  program.operations.shrink_to_fit();
  program.can_be_empty = FirstBytes(program).find(0, program.first_bytes);
  findBranches(program);
  return program;
}

}  // namespace chorus::regex
