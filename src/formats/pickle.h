// Python pickles as data: a reader of the opcodes that build containers, numbers and strings. Nothing is executed;
// what the pickle wants to import or call is offered to a host, which knows a few names and refuses the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

namespace chorus {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kLong,
  kFloat,
  kText,
  kTuple,
  kList,
  kDict,
  kOrderedDict,
  kGlobal,
  kObject
};

// Sixteen bytes; containers lie in a PickleHeap, texts in the pickle.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  uint32_t index = 0;  // place in the heap; id of a global or object, which the host gives meaning to
  union {
    int64_t integer = 0;  // kInt, kBool; a tuple's or text's length; an object's tag
    double real;          // kFloat
  };

  bool is(PickleKind k) const { return kind == k; }
  bool isDict() const { return kind == PickleKind::kDict || kind == PickleKind::kOrderedDict; }
};

class PickleHeap {
 public:
  // text is the pickle's bytes, which texts and longs point into.
  explicit PickleHeap(std::string_view text) : text_(text) {}

  PickleValue newContainer(PickleKind kind);  // kList, kDict, kOrderedDict; empty
  PickleValue newTuple(std::span<const PickleValue> items);
  // A list's items; a dict's keys and values in turn, in the order they were set: the last value of a key counts.
  std::vector<PickleValue>& items(const PickleValue& container) { return containers_[container.index]; }
  const std::vector<PickleValue>& items(const PickleValue& container) const { return containers_[container.index]; }
  std::span<const PickleValue> tuple(const PickleValue& value) const {
    return std::span(tuples_).subspan(value.index, static_cast<size_t>(value.integer));
  }
  // Of kText, valid UTF-8; of kLong, its bytes, two's complement and little-endian.
  std::string_view text(const PickleValue& value) const {
    return text_.substr(value.index, static_cast<size_t>(value.integer));
  }

 private:
  std::string_view text_;
  std::deque<std::vector<PickleValue>> containers_;
  std::vector<PickleValue> tuples_;
};

// What a pickle may import, call and refer to. Each throws Error(kUnsupported) that names what is refused.
class PickleHost {
 public:
  virtual ~PickleHost() = default;
  virtual PickleValue findGlobal(std::string_view module, std::string_view name) = 0;
  // global is what findGlobal returned.
  virtual PickleValue call(PickleHeap& heap, const PickleValue& global, std::span<const PickleValue> arguments) = 0;
  virtual PickleValue persistentLoad(const PickleHeap& heap, const PickleValue& id) = 0;
};

struct Pickle {
  PickleHeap heap;
  PickleValue root;
  size_t size = 0;  // bytes of the pickle, its STOP included
};

// Reads the pickle at the front of `bytes`, protocols 2 to 5. Bounded by 2 million opcodes and memory of a few tens of
// bytes for each. Throws Error(kCorrupt) for bytes that are no pickle, Error(kUnsupported) that names an opcode which
// builds other things than data.
Pickle readPickle(std::string_view bytes, std::string_view source, PickleHost& host);

}  // namespace chorus
