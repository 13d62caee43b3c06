// Values of chat templates: Python's values, as far as templates can see them.
//
// A Value is 16 bytes and refers to objects in an arena. There is no reference counting; nothing is freed before the
// rendering ends. Texts, lists and dicts never change once they are made, so a text or list can be a part of another
// one.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

#include "text/template/arena.h"

namespace chorus::tmpl {

class Runtime;
class Sequence;
class Dict;
class Function;
class LoopState;
struct CallArgs;
struct Scope;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kWideInt,  // an integer that does not fit int64_t: can be kept, compared and printed, but not computed with
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kFunction,
  kLoop
};

// Selects the message that requireDefined() throws for an undefined value; x is the name.
enum class Hint : uint8_t {
  kName,           // 'x' is undefined
  kAttribute,      // '... object' has no attribute 'x'
  kNoneAttribute,  // 'None' has no attribute 'x'
  kElement,        // ... has no element x
  kUnsafe,         // access to attribute 'x' is unsafe
  kChangesDict,    // 'x' would change a dict
  kParameter,      // parameter 'x' was not provided
  kText            // x itself
};

class Value {
 public:
  constexpr Value() : kind_(Kind::kNone), integer_(0) {}
  template <std::same_as<bool> T>
  constexpr Value(T v) : kind_(Kind::kBool), integer_(v) {}
  template <std::same_as<int64_t> T>
  constexpr Value(T v) : kind_(Kind::kInt), integer_(v) {}
  template <std::same_as<double> T>
  constexpr Value(T v) : kind_(Kind::kFloat), number_(v) {}
  Value(const Sequence* v) : kind_(Kind::kSequence), sequence_(v) {}
  Value(Dict* v);  // a dict or a namespace
  Value(const Function* v) : kind_(Kind::kFunction), function_(v) {}
  Value(LoopState* v) : kind_(Kind::kLoop), loop_(v) {}

  // Refers to bytes that must live as long as the rendering: in its arena, the template's arena, the input, or a
  // literal. They must be valid UTF-8. Runtime::text() copies text that does not live long enough.
  static Value ofText(std::string_view text);
  // An integer that does not fit int64_t, as decimal digits without leading zeros, after a minus sign if it is
  // negative. The digits must live as long as ofText requires.
  static Value wideInteger(std::string_view digits);
  // The bytes of name must live as long as ofText requires. object: the value that lacks the name, if the message names
  // its type.
  static Value undefined(Hint hint, std::string_view name, const Value* object = nullptr);

  Kind kind() const { return kind_; }
  bool isUndefined() const { return kind_ == Kind::kUndefined; }
  bool isNone() const { return kind_ == Kind::kNone; }
  bool isString() const { return kind_ == Kind::kString; }
  bool isSequence() const { return kind_ == Kind::kSequence; }
  bool isDict() const { return kind_ == Kind::kDict; }
  // Booleans are integers, as in Python. isInteger and isNumber are false for wide integers, because nothing computes
  // with them.
  bool isInteger() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool isNumber() const { return isInteger() || kind_ == Kind::kFloat; }
  bool isWideInteger() const { return kind_ == Kind::kWideInt; }

  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }
  double number() const { return kind_ == Kind::kFloat ? number_ : static_cast<double>(integer_); }
  std::string_view string() const { return {text_, length_}; }
  std::string_view digits() const { return {text_, length_}; }  // of a wide integer
  const Sequence& sequence() const { return *sequence_; }
  Dict& dict() const { return *dict_; }  // of a dict or namespace; only the code that makes a dict may change it
  const Function& function() const { return *function_; }
  LoopState& loop() const { return *loop_; }
  Hint hint() const { return static_cast<Hint>(extra_ & 7); }
  // Address of a sequence, dict, namespace, function or loop, to compare identity; null for other kinds.
  const void* identity() const { return kind_ >= Kind::kSequence ? static_cast<const void*>(text_) : nullptr; }

  // Nesting depth of the values inside this one; at most kMaxValueDepth, because printing and comparing recurse. Each
  // class below counts it in the function that makes its objects.
  int depth() const;

 private:
  friend void requireDefined(const Value& value);

  Kind kind_;
  uint8_t extra_ = 0;  // for kUndefined: the hint in 3 bits, and the type of the object
  uint32_t length_ = 0;
  union {
    int64_t integer_;
    double number_;
    const char* text_;
    const Sequence* sequence_;
    Dict* dict_;
    const Function* function_;
    LoopState* loop_;
  };
};
static_assert(sizeof(Value) == 16 && std::is_trivially_copyable_v<Value>);

inline constexpr int kMaxValueDepth = 150;

class Sequence {
 public:
  enum class Flavor : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

  // items must live as long as the rendering. Throws TemplateError if they nest too deep.
  static Value make(Runtime& rt, Flavor flavor, std::span<const Value> items);
  // A tuple of the groupby filter, whose parts are also the attributes grouper and list.
  static Value makeGroup(Runtime& rt, const Value& grouper, const Value& list);
  static Value makeRange(Runtime& rt, int64_t start, int64_t stop, int64_t step, size_t count);

  Flavor flavor() const { return flavor_; }
  bool isListOrTuple() const { return flavor_ <= Flavor::kTuple; }
  bool isGroup() const { return is_group_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Value at(size_t i) const {
    if (flavor_ != Flavor::kRange) return items_[i];
    // Unsigned numbers, because the product of a large step may not fit int64_t although the sum does.
    return Value(static_cast<int64_t>(static_cast<uint64_t>(start_) + i * static_cast<uint64_t>(step_)));
  }
  // Empty for a range, whose items are computed one by one.
  std::span<const Value> items() const { return {items_, flavor_ == Flavor::kRange ? 0 : size_}; }
  int64_t start() const { return start_; }
  int64_t stop() const { return stop_; }
  int64_t step() const { return step_; }
  int depth() const { return depth_; }
  // A generator can be iterated once: returns true for the first caller only.
  bool consume() const { return std::exchange(consumed_, true) == false; }

 private:
  friend class Arena;
  Sequence(Flavor flavor, std::span<const Value> items, int depth)
      : flavor_(flavor), depth_(depth), size_(items.size()), items_(items.data()) {}

  Flavor flavor_;
  bool is_group_ = false;
  mutable bool consumed_ = false;
  int depth_;
  size_t size_;
  union {
    const Value* items_;
    int64_t start_;
  };
  int64_t stop_ = 0, step_ = 1;
};

// A dict whose entries keep their insertion order.
class Dict {
 public:
  struct Entry {
    Value key, value;
  };

  // room: the expected number of entries.
  static Dict* make(Runtime& rt, size_t room = 0);
  static Dict* makeNamespace(Runtime& rt);
  static Dict* copy(Runtime& rt, const Dict& from);

  bool isNamespace() const { return is_namespace_; }
  std::span<const Entry> entries() const { return {entries_, size_}; }
  size_t size() const { return size_; }
  // Returns null if the key does not exist. Throws TemplateError for a value that can't be a key.
  const Value* find(Runtime& rt, const Value& key) const;
  // Throws TemplateError if a dict's values nest too deep. A namespace is a reference that nothing recurses into.
  void set(Runtime& rt, const Value& key, const Value& value);
  // Turns a dict to which nothing else refers yet into a namespace.
  void becomeNamespace();
  int depth() const { return depth_; }

 private:
  friend class Arena;
  explicit Dict(bool is_namespace) : is_namespace_(is_namespace), depth_(is_namespace ? 0 : 1) {}

  size_t position(Runtime& rt, const Value& key) const;
  void reserve(Runtime& rt, size_t room);
  void addToIndex(Runtime& rt, size_t entry);

  bool is_namespace_;
  int depth_;
  uint32_t size_ = 0, capacity_ = 0;
  Entry* entries_ = nullptr;
  // Open addressing: each slot holds an entry's position + 1, or 0. Empty for a dict of few entries, which is searched
  // linearly.
  std::span<uint32_t> index_;
};

struct NamedValue {
  std::string_view name;
  Value value;
};

struct CallArgs {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

// A function of a template. All values that it uses must be in its captures, so that they count in its depth.
class Function {
 public:
  using Call = Value (*)(Runtime&, const Function& self, CallArgs&);

  // Constructor for tables of functions without captures.
  constexpr Function(std::string_view name, Call call) : name_(name), call_(call) {}
  // name and captures must live as long as the rendering. counter: a number that calls change; functions may share it.
  static Value make(Runtime& rt, std::string_view name, Call call, std::span<const Value> captures,
                    uint64_t* counter = nullptr);
  // A macro. code: its statement. scope: the scope around it, which is a reference like a namespace.
  static Value makeMacro(Runtime& rt, std::string_view name, Call call, const void* code, Scope* scope,
                         std::span<const Value> parameter_names);

  std::string_view name() const { return name_; }
  Value call(Runtime& rt, CallArgs& args) const { return call_(rt, *this, args); }
  std::span<const Value> captures() const { return captures_; }
  uint64_t& counter() const { return *counter_; }
  const void* code() const { return code_; }
  Scope* scope() const { return scope_; }
  int depth() const { return depth_; }

 private:
  friend class Arena;

  std::string_view name_;
  Call call_;
  std::span<const Value> captures_;  // for a macro, the names of its parameters
  uint64_t* counter_ = nullptr;
  const void* code_ = nullptr;
  Scope* scope_ = nullptr;
  int depth_ = 1;
};

// The variable "loop" inside a loop.
class LoopState {
 public:
  // items: a sequence. code: the loop's statement if it is recursive, else null. scope: the scope around the loop.
  static LoopState* make(Runtime& rt, const Value& items, int64_t level, const void* code, Scope* scope);

  const Sequence& items() const { return items_.sequence(); }
  size_t index() const { return index_; }
  void advance() { ++index_; }
  int64_t level() const { return level_; }  // loop.depth: the nesting of a recursive loop's calls, from 1
  const void* code() const { return code_; }
  Scope* scope() const { return scope_; }
  int depth() const { return depth_; }
  // Whether the values differ from those of the previous call.
  bool changed(Runtime& rt, std::span<const Value> values);

 private:
  friend class Arena;
  LoopState(const Value& items, int64_t level, const void* code, Scope* scope, int depth)
      : items_(items), level_(level), code_(code), scope_(scope), depth_(depth) {}

  Value items_;
  size_t index_ = 0;
  std::span<const Value> last_;  // last arguments of loop.changed
  bool has_last_ = false;
  int64_t level_;
  const void* code_;
  Scope* scope_;
  int depth_;
};

bool truthy(const Value& value);
bool equals(Runtime& rt, const Value& a, const Value& b);
// Python's a < b; throws TemplateError where Python does.
bool lessThan(Runtime& rt, const Value& a, const Value& b);
// Python's name of the type: "str", "int", ...
std::string_view typeName(const Value& value);
// Throws TemplateError with the hint's message if the value is undefined.
void requireDefined(const Value& value);

}  // namespace chorus::tmpl
