#include "formats/pickle.h"

#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/utf8.h"

namespace chorus {
namespace {

// A state dict takes about 35 opcodes per tensor.
constexpr size_t kMaxOpcodes = 2'000'000;
// PickleValue::index holds offsets of 32 bits. Files of a million tensors stay below this.
constexpr size_t kMaxPickleBytes = size_t{32} << 20;
constexpr size_t kMaxNameBytes = 256;
// Limit on the arguments of a call and on the attribute items in BUILD. Real files have fewer.
constexpr size_t kMaxArguments = 64;

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kNewObject = 0x81,
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinFloat = 'G',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  // Opcodes of protocol 4.
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95
};

struct Refused {
  uint8_t opcode;
  std::string_view name;
};
// Opcodes that torch.save does not need for containers of tensors: they create objects, call functions in other ways,
// or belong to the text protocols.
constexpr Refused kRefused[] = {{'i', "INST"},
                                {'o', "OBJ"},
                                {0x92, "NEWOBJ_EX"},
                                {0x82, "EXT1"},
                                {0x83, "EXT2"},
                                {0x84, "EXT4"},
                                {'P', "PERSID"},
                                {'0', "POP"},
                                {'1', "POP_MARK"},
                                {'2', "DUP"},
                                {'I', "INT"},
                                {'L', "LONG"},
                                {'F', "FLOAT"},
                                {'S', "STRING"},
                                {'V', "UNICODE"},
                                {'T', "BINSTRING"},
                                {'g', "GET"},
                                {'p', "PUT"},
                                {'l', "LIST"},
                                {'d', "DICT"},
                                {0x8b, "LONG4"},
                                {'B', "BINBYTES"},
                                {'C', "SHORT_BINBYTES"},
                                {0x8e, "BINBYTES8"},
                                {0x8f, "EMPTY_SET"},
                                {0x90, "ADDITEMS"},
                                {0x91, "FROZENSET"},
                                {0x96, "BYTEARRAY8"},
                                {0x97, "NEXT_BUFFER"},
                                {0x98, "READONLY_BUFFER"}};

PickleValue ofKind(PickleKind kind, int64_t integer = 0) {
  PickleValue value;
  value.kind = kind;
  value.integer = integer;
  return value;
}

bool isKey(const PickleValue& value) {
  switch (value.kind) {
    case PickleKind::kNone:
    case PickleKind::kBool:
    case PickleKind::kInt:
    case PickleKind::kFloat:
    case PickleKind::kText:
      return true;
    default:
      return false;
  }
}

// Values by key. Keys are consecutive in all but hostile files, so a vector holds them. Other keys go into a map, not a
// hash table, which would take quadratic time for keys chosen to collide.
class Memo {
 public:
  void put(uint32_t key, const PickleValue& value) {
    if (key < dense_.size()) {
      dense_[key] = value;
    } else if (key == dense_.size() && !sparse_.contains(key)) {
      dense_.push_back(value);
    } else {
      sparse_[key] = value;
    }
  }
  const PickleValue* find(uint32_t key) const {
    if (key < dense_.size()) return &dense_[key];
    const auto it = sparse_.find(key);
    return it == sparse_.end() ? nullptr : &it->second;
  }
  size_t size() const { return dense_.size() + sparse_.size(); }

 private:
  std::vector<PickleValue> dense_;  // values of the keys 0, 1, 2, ...
  std::map<uint32_t, PickleValue> sparse_;
};

class Machine {
 public:
  Machine(PartialBytes bytes, std::string_view source, PickleHost& host, PickleHeap& heap)
      : bytes_(std::move(bytes)), source_(source), host_(host), heap_(heap) {}

  PickleValue run() {
    if (take(1)[0] != static_cast<char>(kProto)) corrupt("it does not begin with its protocol");
    protocol_ = number<uint8_t>();
    if (protocol_ < 2 || protocol_ > 5) {
      fail(ErrorCode::kUnsupported, "{}: pickle protocol {} is not supported; protocols 2 to 5 are", source_,
           protocol_);
    }
    for (size_t count = 0; count < kMaxOpcodes; ++count) {
      const auto opcode = number<uint8_t>();
      if (opcode == kStop) return finish();
      step(opcode);
    }
    fail(ErrorCode::kUnsupported, "{}: a pickle of more than {} opcodes", source_, kMaxOpcodes);
  }
  size_t position() const { return at_; }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(ErrorCode::kCorrupt, "{}: not a whole pickle: {} (byte {})", source_, reason, at_);
  }

  [[noreturn]] void refuse(std::string_view opcode) const {
    fail(ErrorCode::kUnsupported, "{}: the pickle uses {}, which tensors do not need: refused", source_, opcode);
  }

  std::string_view read(uint64_t size) const {
    const auto bytes = bytes_.read(at_, size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) {
      corrupt(bytes_.size() < kMaxPickleBytes ? "it is cut off" : "it has more than 32 MiB");
    }
    const std::string_view taken = read(size);
    at_ += size;
    return taken;
  }
  template <typename T>
  T number() {
    const std::string_view raw = take(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(raw[i])) << (8 * i));
    }
    return value;
  }
  std::string_view line() {
    const size_t end = read(std::min(kMaxNameBytes, bytes_.size() - at_)).find('\n');
    if (end == std::string_view::npos) corrupt("a name has no end");
    const std::string_view text = take(end);
    ++at_;
    return text;
  }

  void push(const PickleValue& value) { stack_.push_back(value); }
  size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue& top() {
    if (stack_.size() <= bottom()) corrupt("its stack is empty");
    return stack_.back();
  }
  PickleValue pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
  }
  // Positions on the stack: of the topmost `count` values, and of the values above the last mark, which is removed.
  size_t topmost(size_t count) const {
    if (stack_.size() < bottom() + count) corrupt("its stack is empty");
    return stack_.size() - count;
  }
  size_t popMark() {
    if (marks_.empty()) corrupt("a mark is missing");
    const size_t from = marks_.back();
    marks_.pop_back();
    return from;
  }
  // The value that the values from position `from` on are put into.
  const PickleValue& below(size_t from) const {
    if (from <= bottom()) corrupt("its stack is empty");
    return stack_[from - 1];
  }
  auto iterator(size_t position) { return stack_.begin() + static_cast<std::ptrdiff_t>(position); }
  void drop(size_t from) { stack_.erase(iterator(from), stack_.end()); }
  void moveItems(const PickleValue& container, size_t from) {
    auto& items = heap_.items(container);
    items.insert(items.end(), iterator(from), stack_.end());
    drop(from);
  }

  PickleValue finish() {
    if (!marks_.empty() || stack_.size() != 1) corrupt("values are left on its stack at the end");
    return stack_.back();
  }

  void pushText(uint64_t size) {
    const size_t begin = at_;
    const std::string_view text = take(size);
    if (!isUtf8(text)) corrupt("a text is not UTF-8");
    PickleValue value = ofKind(PickleKind::kText, static_cast<int64_t>(text.size()));
    value.index = static_cast<uint32_t>(begin);
    push(value);
  }

  void pushLong() {
    const auto size = number<uint8_t>();
    PickleValue value = ofKind(PickleKind::kLong, size);
    value.index = static_cast<uint32_t>(at_);
    const std::string_view raw = take(size);
    if (size <= 8) {  // the last byte holds the sign
      uint64_t bits = size > 0 && (raw.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
      for (size_t i = size; i-- > 0;) bits = bits << 8 | static_cast<uint8_t>(raw[i]);
      value = ofKind(PickleKind::kInt, static_cast<int64_t>(bits));
    }
    push(value);
  }

  // These three take the values from position `from` on off the stack.
  void makeTuple(size_t from) {
    const PickleValue tuple = heap_.newTuple(iterator(from), stack_.end());
    drop(from);
    push(tuple);
  }

  void append(size_t from) {
    const PickleValue& list = below(from);
    if (host_.isOpaque(list)) return drop(from);
    if (!list.is(PickleKind::kList)) corrupt("it appends to a value that is not a list");
    moveItems(list, from);
  }

  void setItems(size_t from) {
    const PickleValue& dict = below(from);
    if (host_.isOpaque(dict)) return drop(from);
    if (!dict.isDict()) corrupt("it sets items of a value that is not a dictionary");
    if ((stack_.size() - from) % 2 != 0) corrupt("a key has no value");
    for (size_t i = from; i < stack_.size(); i += 2) {
      if (!isKey(stack_[i]) && !host_.isOpaque(stack_[i]))
        fail(ErrorCode::kUnsupported, "{}: a dictionary key is neither a string nor a number", source_);
    }
    moveItems(dict, from);
  }

  void reduce() {
    const PickleValue arguments = pop();
    const PickleValue callee = pop();
    if (host_.isOpaque(callee)) return push(callee);
    if (!callee.is(PickleKind::kGlobal)) corrupt("it calls a value that is not a function");
    if (!arguments.is(PickleKind::kTuple)) corrupt("it calls without a tuple of arguments");
    const auto span = heap_.tuple(arguments);
    if (span.size() > kMaxArguments) corrupt("it calls with too many arguments");
    // The arguments are copied because the call may create tuples, which can move the heap's tuple storage.
    push(host_.call(heap_, callee, std::vector<PickleValue>(span.begin(), span.end())));
  }

  // torch.save stores the _metadata attribute of a state dict by BUILD. Attributes are checked and dropped, as they
  // change no item of the dictionary.
  void build() {
    const PickleValue state = pop();
    if (host_.isOpaque(top())) return;
    if (!top().is(PickleKind::kOrderedDict) || !state.isDict()) {
      fail(ErrorCode::kUnsupported, "{}: the pickle sets the state of an object (BUILD): refused", source_);
    }
    const auto& items = heap_.items(state);
    if (items.size() > kMaxArguments) corrupt("an object has too many attributes");
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!items[i].is(PickleKind::kText)) corrupt("the name of an attribute is not a string");
    }
  }

  // The class of an object and its arguments.
  void newObject() {
    const PickleValue arguments = pop();
    const PickleValue callee = pop();
    if (host_.isOpaque(callee)) return push(callee);
    std::optional<PickleValue> made;
    if (callee.is(PickleKind::kGlobal) && arguments.is(PickleKind::kTuple)) {
      made = host_.newObject(callee, heap_.tuple(arguments));
    }
    if (!made) refuse("NEWOBJ");
    push(*made);
  }

  void getMemo(uint32_t index) {
    const PickleValue* value = memo_.find(index);
    if (value == nullptr) corrupt("it reads a memo entry that was never stored");
    push(*value);
  }

  void stackGlobal() {
    const PickleValue name = pop(), module = pop();
    if (!name.is(PickleKind::kText) || !module.is(PickleKind::kText)) corrupt("the name of a global is not a string");
    if (heap_.text(name).size() > kMaxNameBytes || heap_.text(module).size() > kMaxNameBytes) {
      corrupt("the name of a global is too long");
    }
    push(host_.findGlobal(heap_.text(module), heap_.text(name)));
  }

  void step(uint8_t opcode) {
    switch (opcode) {
      case kMark:
        return marks_.push_back(stack_.size());
      case kNone:
        return push({});
      case kNewTrue:
        return push(ofKind(PickleKind::kBool, 1));
      case kNewFalse:
        return push(ofKind(PickleKind::kBool, 0));
      case kBinInt:
        return push(ofKind(PickleKind::kInt, static_cast<int32_t>(number<uint32_t>())));
      case kBinInt1:
        return push(ofKind(PickleKind::kInt, number<uint8_t>()));
      case kBinInt2:
        return push(ofKind(PickleKind::kInt, number<uint16_t>()));
      case kLong1:
        return pushLong();
      case kBinFloat: {
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
        PickleValue value = ofKind(PickleKind::kFloat);
        value.real = std::bit_cast<double>(bits);
        return push(value);
      }
      case kBinUnicode:
        return pushText(number<uint32_t>());
      case kShortBinString:
        return pushText(number<uint8_t>());
      case kEmptyTuple:
        return makeTuple(stack_.size());
      case kTuple1:
        return makeTuple(topmost(1));
      case kTuple2:
        return makeTuple(topmost(2));
      case kTuple3:
        return makeTuple(topmost(3));
      case kTuple:
        return makeTuple(popMark());
      case kEmptyList:
        return push(heap_.newContainer(PickleKind::kList));
      case kEmptyDict:
        return push(heap_.newContainer(PickleKind::kDict));
      case kAppend:
        return append(topmost(1));
      case kAppends:
        return append(popMark());
      case kSetItem:
        return setItems(topmost(2));
      case kSetItems:
        return setItems(popMark());
      case kBinPut:
        memo_.put(number<uint8_t>(), top());
        return;
      case kLongBinPut:
        memo_.put(number<uint32_t>(), top());
        return;
      case kBinGet:
        return getMemo(number<uint8_t>());
      case kLongBinGet:
        return getMemo(number<uint32_t>());
      case kGlobal: {
        const std::string_view module = line(), name = line();
        return push(host_.findGlobal(module, name));
      }
      case kReduce:
        return reduce();
      case kNewObject:
        return newObject();
      case kBuild:
        return build();
      case kBinPersId:
        return push(host_.persistentLoad(heap_, pop()));
      default:
        return stepOfProtocol4(opcode);
    }
  }

  void stepOfProtocol4(uint8_t opcode) {
    if (protocol_ >= 4) {
      switch (opcode) {
        case kShortBinUnicode:
          return pushText(number<uint8_t>());
        case kBinUnicode8:
          return pushText(number<uint64_t>());
        case kStackGlobal:
          return stackGlobal();
        case kMemoize:
          memo_.put(static_cast<uint32_t>(memo_.size()), top());
          return;
        case kFrame:
          number<uint64_t>();
          return;  // the frame size is only a hint for readers of streams
        default:
          break;
      }
    }
    for (const Refused& refused : kRefused) {
      if (refused.opcode == opcode) refuse(refused.name);
    }
    corrupt("an unknown opcode");
  }

  PartialBytes bytes_;
  std::string_view source_;
  PickleHost& host_;
  PickleHeap& heap_;
  int protocol_ = 0;
  size_t at_ = 0;
  // A deque, which is not copied while it grows, keeps hostile files below 64 bytes of memory an opcode.
  std::deque<PickleValue> stack_;
  std::vector<size_t> marks_;
  Memo memo_;
};
}  // namespace

PickleValue PickleHeap::newContainer(PickleKind kind) {
  PickleValue value = ofKind(kind);
  value.index = static_cast<uint32_t>(containers_.size());
  containers_.emplace_back();
  return value;
}

Pickle readPickle(std::string_view bytes, std::string_view source, PickleHost& host) {
  return readPickle(PartialBytes(std::as_bytes(std::span(bytes))), source, host);
}

Pickle readPickle(const PartialBytes& bytes, std::string_view source, PickleHost& host) {
  const PartialBytes within = bytes.part(0, std::min(bytes.size(), kMaxPickleBytes));
  const auto memory = within.memory();
  Pickle pickle{PickleHeap({reinterpret_cast<const char*>(memory.data()), memory.size()}), {}, 0};
  Machine machine(within, source, host, pickle.heap);
  pickle.root = machine.run();
  pickle.size = machine.position();
  return pickle;
}

}  // namespace chorus
