// Reads Python pickles as data: it interprets only the opcodes that build containers, numbers and strings. Nothing is
// executed. Imports and calls are passed to a PickleHost, which accepts a few names and refuses all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/partial_bytes.h"

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

// A value of 16 bytes. The items of containers are stored in a PickleHeap; texts and longs are views into the pickle.
struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  uint32_t index = 0;  // containers: index in the heap; kText, kLong: offset in the pickle; others: an id of the host
  union {
    int64_t integer = 0;  // kInt, kBool: the value; kTuple, kText, kLong: the length; kObject: a tag of the host
    double real;          // kFloat: the value
  };

  bool is(PickleKind k) const { return kind == k; }
  bool isDict() const { return kind == PickleKind::kDict || kind == PickleKind::kOrderedDict; }
};

class PickleHeap {
 public:
  // text: the bytes of the pickle. Texts and longs are views into them.
  explicit PickleHeap(std::string_view text) : text_(text) {}

  PickleValue newContainer(PickleKind kind);  // an empty kList, kDict or kOrderedDict
  template <typename Iterator>
  PickleValue newTuple(Iterator begin, Iterator end) {
    PickleValue tuple;
    tuple.kind = PickleKind::kTuple;
    tuple.index = static_cast<uint32_t>(tuples_.size());
    tuple.integer = end - begin;
    tuples_.insert(tuples_.end(), begin, end);
    return tuple;
  }
  // A list's items, or a dict's alternating keys and values in the order they were set. A dict's key may occur several
  // times; the last value counts.
  std::vector<PickleValue>& items(const PickleValue& container) { return containers_[container.index]; }
  const std::vector<PickleValue>& items(const PickleValue& container) const { return containers_[container.index]; }
  std::span<const PickleValue> tuple(const PickleValue& value) const {
    return std::span(tuples_).subspan(value.index, static_cast<size_t>(value.integer));
  }
  // The bytes of a kText (valid UTF-8) or of a kLong (little-endian two's complement).
  std::string_view text(const PickleValue& value) const {
    return text_.substr(value.index, static_cast<size_t>(value.integer));
  }

 private:
  std::string_view text_;
  std::deque<std::vector<PickleValue>> containers_;
  std::vector<PickleValue> tuples_;
};

// Decides what a pickle may import, call and refer to. Each function throws Error(kUnsupported) that names what it
// refuses.
class PickleHost {
 public:
  virtual ~PickleHost() = default;
  virtual PickleValue findGlobal(std::string_view module, std::string_view name) = 0;
  // global is what findGlobal returned.
  virtual PickleValue call(PickleHeap& heap, const PickleValue& global, std::span<const PickleValue> arguments) = 0;
  virtual PickleValue persistentLoad(const PickleHeap& heap, const PickleValue& id) = 0;
  // An object of the class `global`, made without its constructor (NEWOBJ); nullopt: refused.
  virtual std::optional<PickleValue> newObject(const PickleValue& /*global*/,
                                               std::span<const PickleValue> /*arguments*/) {
    return std::nullopt;
  }
  // Whether the value stands for an object that is not data. Calling it gives another such value, and the state, items
  // and keys that the pickle gives it are dropped.
  virtual bool isOpaque(const PickleValue& /*value*/) const { return false; }
};

struct Pickle {
  PickleHeap heap;
  PickleValue root;
  size_t size = 0;  // bytes of the pickle, including the STOP opcode
};

// Reads the pickle (protocols 2 to 5) at the beginning of `bytes`, whose memory must outlive the result, and none of
// the bytes behind it but those that could belong to a name. Limits: 32 MiB, 2 million opcodes, and a few tens of bytes
// of memory per opcode. Throws Error(kCorrupt) for bytes that are not a pickle, Error(kUnsupported) for an opcode that
// builds anything but data (it is named).
Pickle readPickle(const PartialBytes& bytes, std::string_view source, PickleHost& host);
Pickle readPickle(std::string_view bytes, std::string_view source, PickleHost& host);

}  // namespace chorus
