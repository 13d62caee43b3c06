// Values of chat templates: Python's, as far as templates can see them.
//
// A value is 16 bytes and refers to what an arena holds: nothing is counted, nothing is freed before the rendering
// ends. Texts, lists and dicts never change once they are made, so a text or list can be a part of another one.
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
  kWideInt,  // an integer that does not fit int64_t: it is kept, compared and printed, and never computed with
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kFunction,
  kLoop
};

// What a use of an undefined value reports; requireDefined() makes the text of it.
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

  // Refers to bytes that live as long as the rendering: in its arena, the template's, the input, or a literal. Valid
  // UTF-8; Runtime::text() copies other bytes.
  static Value ofText(std::string_view text);
  // An integer beyond int64_t by its decimal digits without leading zeros, behind a minus where it is negative. They
  // are kept as by ofText.
  static Value wideInteger(std::string_view digits);
  // The name is kept as by ofText; object is what lacks it, where the hint names its type.
  static Value undefined(Hint hint, std::string_view name, const Value* object = nullptr);

  Kind kind() const { return kind_; }
  bool isUndefined() const { return kind_ == Kind::kUndefined; }
  bool isNone() const { return kind_ == Kind::kNone; }
  bool isString() const { return kind_ == Kind::kString; }
  bool isSequence() const { return kind_ == Kind::kSequence; }
  bool isDict() const { return kind_ == Kind::kDict; }
  // Booleans are integers, as in Python. The next two are false for wide integers, which nothing computes with.
  bool isInteger() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool isNumber() const { return isInteger() || kind_ == Kind::kFloat; }
  bool isWideInteger() const { return kind_ == Kind::kWideInt; }

  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }
  double number() const { return kind_ == Kind::kFloat ? number_ : static_cast<double>(integer_); }
  std::string_view string() const { return {text_, length_}; }
  std::string_view digits() const { return {text_, length_}; }  // of a wide integer
  const Sequence& sequence() const { return *sequence_; }
  Dict& dict() const { return *dict_; }  // of a dict or namespace; a dict is changed only by who makes it
  const Function& function() const { return *function_; }
  LoopState& loop() const { return *loop_; }
  Hint hint() const { return static_cast<Hint>(extra_ & 7); }
  // The object behind a list, dict or function, for identity; null when there is none.
  const void* identity() const { return kind_ >= Kind::kSequence ? static_cast<const void*>(text_) : nullptr; }

  // How deep values nest below this one. Bounded by kMaxValueDepth, because printing and comparing recurse. Every
  // class below counts it in the one function that makes its objects.
  int depth() const;

 private:
  friend void requireDefined(const Value& value);

  Kind kind_;
  uint8_t extra_ = 0;  // of Undefined: the hint in 3 bits, and the type of the object
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

  // items live as long as the rendering. Throws TemplateError when they nest too deep.
  static Value make(Runtime& rt, Flavor flavor, std::span<const Value> items);
  // A tuple of groupby, whose parts are also called grouper and list.
  static Value makeGroup(Runtime& rt, const Value& grouper, const Value& list);
  static Value makeRange(Runtime& rt, int64_t start, int64_t stop, int64_t step, size_t count);

  Flavor flavor() const { return flavor_; }
  bool isListOrTuple() const { return flavor_ <= Flavor::kTuple; }
  bool isGroup() const { return is_group_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Value at(size_t i) const {
    return flavor_ == Flavor::kRange ? Value(start_ + static_cast<int64_t>(i) * step_) : items_[i];
  }
  // Empty for a range, whose items are made one by one.
  std::span<const Value> items() const { return {items_, flavor_ == Flavor::kRange ? 0 : size_}; }
  int64_t start() const { return start_; }
  int64_t stop() const { return stop_; }
  int64_t step() const { return step_; }
  int depth() const { return depth_; }
  // A generator gives its items once: true for the first caller.
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

// Keys keep the order in which they came.
class Dict {
 public:
  struct Entry {
    Value key, value;
  };

  // room: how many entries are expected.
  static Dict* make(Runtime& rt, size_t room = 0);
  static Dict* makeNamespace(Runtime& rt);
  static Dict* copy(Runtime& rt, const Dict& from);

  bool isNamespace() const { return is_namespace_; }
  std::span<const Entry> entries() const { return {entries_, size_}; }
  size_t size() const { return size_; }
  // Null when there is none. Throws TemplateError on a key that can't be one.
  const Value* find(Runtime& rt, const Value& key) const;
  // Throws TemplateError when a dict's values nest too deep; a namespace is a reference, which nothing walks through.
  void set(Runtime& rt, const Value& key, const Value& value);
  // A dict that nothing else has seen yet becomes a namespace.
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
  std::span<uint32_t> index_;  // by hash, open addressing: position + 1; empty for few entries, which are compared
};

struct NamedValue {
  std::string_view name;
  Value value;
};

struct CallArgs {
  std::span<const Value> positional;
  std::span<const NamedValue> named;
};

// A function of a template. Whatever values it needs are its captures, so that they count to its depth.
class Function {
 public:
  using Call = Value (*)(Runtime&, const Function& self, CallArgs&);

  // For tables of functions that capture nothing.
  constexpr Function(std::string_view name, Call call) : name_(name), call_(call) {}
  // name and captures live as long as the rendering. counter: what calls count, shared with other functions.
  static Value make(Runtime& rt, std::string_view name, Call call, std::span<const Value> captures,
                    uint64_t* counter = nullptr);
  // A macro: code is the statement, and the scope is the one around it. A scope is a reference like a namespace.
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
  std::span<const Value> captures_;  // the names of a macro's parameters
  uint64_t* counter_ = nullptr;
  const void* code_ = nullptr;
  Scope* scope_ = nullptr;
  int depth_ = 1;
};

// What "loop" is inside a loop.
class LoopState {
 public:
  // items: a sequence. code is the loop's statement when it is recursive, else null, and scope the one around it.
  static LoopState* make(Runtime& rt, const Value& items, int64_t level, const void* code, Scope* scope);

  const Sequence& items() const { return items_.sequence(); }
  size_t index() const { return index_; }
  void advance() { ++index_; }
  int64_t level() const { return level_; }  // loop.depth: how often a recursive loop has called itself
  const void* code() const { return code_; }
  Scope* scope() const { return scope_; }
  int depth() const { return depth_; }
  // Whether the values differ from those of the call before.
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
// Throws for Undefined, with its hint.
void requireDefined(const Value& value);

}  // namespace chorus::tmpl
