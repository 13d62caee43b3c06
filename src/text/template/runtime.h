// The limits of a running template, and the operations on values that are charged to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/template/operator_names.h"
#include "text/template/stack_guard.h"
#include "text/template/value.h"
#include "text/template/work.h"

namespace chorus::tmpl {

class Interpreter;

// Limits of one rendering; exceeding any of them is an error.
struct Limits {
  uint64_t max_work = uint64_t{256} << 20;  // bytes of work
  size_t max_memory = size_t{16} << 20;     // bytes of system memory for all texts and values made
  // Each byte of the input adds this much to max_work and max_memory.
  uint64_t work_per_byte = 128;
  size_t memory_per_byte = 16;
  int max_depth = 400;  // levels of evaluation; the stack is also limited in bytes
  int64_t max_range = 100'000;
};

struct Scope {
  struct Variable {
    std::string_view name;
    Value value;
  };

  Scope* parent = nullptr;
  // True if a macro or a recursive loop that may be called later refers to this scope, or to one inside it.
  bool captured = false;
  uint32_t size = 0;
  std::span<Variable> variables;  // the first `size` are set

  Value* findHere(Runtime& rt, std::string_view name);
  Value* find(Runtime& rt, std::string_view name);
  // The bytes of name must live as long as Value::ofText requires.
  void set(Runtime& rt, std::string_view name, const Value& value);
  void capture();
};

class Runtime {
 public:
  // The meter must outlive the Runtime.
  Runtime(const Limits& limits, WorkMeter& meter, std::time_t now)
      : limits_(limits), now_(now), work_(meter, limits.max_work), memory_(limits.max_memory, &meter) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Code that reads, writes or compares bytes of texts or values must charge them here first.
  void charge(uint64_t bytes) { work_.charge(bytes); }
  void step(uint64_t count = 1) { work_.charge(count * Work::kStep); }
  // Raises the limits of work and memory for this many bytes of input.
  void allowForInput(size_t bytes);

  Arena& objects() { return objects_; }
  // Texts have their own arena, so that a text that is appended to repeatedly is more often the last allocation.
  Arena& texts() { return texts_; }
  MemoryLimit& memory() { return memory_; }
  const MemoryLimit& memory() const { return memory_; }
  const Work& work() const { return work_; }

  // A copy of the text, as a value.
  Value text(std::string_view text);
  // Like text(), but replaces invalid bytes; valid text is not copied.
  Value validText(std::string_view text);
  // Uninitialised space for a text of exactly this many bytes.
  char* newText(size_t bytes);
  Value concat(std::string_view a, std::string_view b);
  std::span<Value> newValues(size_t count);

  const Limits& limits() const { return limits_; }
  std::time_t now() const { return now_; }

  // Throws TemplateError if the stack is used up. Every function that recurses over values or the tree must call it.
  void checkStack() const {
    if (stack_.exhausted()) raise("the template nests too deep");
  }
  // Counts one more level of evaluation while the object exists.
  class Deeper {
   public:
    explicit Deeper(Runtime& rt) : rt_(rt) {
      rt.checkStack();
      if (rt_.depth_ >= rt_.limits_.max_depth) raise("evaluation nests deeper than {} levels", rt_.limits_.max_depth);
      ++rt_.depth_;
    }
    ~Deeper() { --rt_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Runtime& rt_;
  };

  // Whether two names, which may be long, are equal.
  bool sameName(std::string_view a, std::string_view b) {
    charge(sizeof(std::string_view));
    if (a.size() != b.size()) return false;
    charge(a.size());
    return a == b;
  }

  Interpreter* interpreter = nullptr;  // executes calls of macros and recursive loops

 private:
  Limits limits_;
  std::time_t now_;
  Work work_;
  MemoryLimit memory_;
  Arena objects_{memory_}, texts_{memory_};
  StackGuard stack_;
  int depth_ = 0;
};

// Arguments in the order of the parameters; null for absent ones. Throws TemplateError for unknown, repeated, missing
// or too many arguments. The arguments must outlive this object, which refers to them.
class BoundArgs {
 public:
  BoundArgs(const CallArgs& args, std::string_view function, std::initializer_list<std::string_view> parameters,
            size_t required = 0);
  const Value* operator[](size_t i) const { return values_[i]; }
  bool given(size_t i) const { return values_[i] != nullptr && !values_[i]->isNone(); }
  int64_t integerOr(size_t i, int64_t fallback) const;
  bool truthOr(size_t i, bool fallback) const { return values_[i] == nullptr ? fallback : truthy(*values_[i]); }
  // Throws if the argument is given but not a string.
  std::string_view textOr(size_t i, std::string_view fallback) const;

 private:
  static constexpr size_t kMaxParameters = 4;
  std::string_view function_;
  std::array<const Value*, kMaxParameters> values_{};
};

// The items that a for loop or filter visits, one at a time; those of a text are its characters. Charges for each item.
class Items {
 public:
  // Throws TemplateError if the value can't be iterated. A generator can't be iterated again afterwards.
  Items(Runtime& rt, const Value& value);
  bool next(Value& item);
  // Number of items left; for a text an upper bound.
  size_t left() const { return size_ - at_; }

 private:
  Runtime& rt_;
  Value value_;
  size_t at_ = 0, size_ = 0;
};

// The items as a sequence that can be indexed, which is the value itself if possible. A generator can't be iterated
// again afterwards.
Value sequenceOf(Runtime& rt, const Value& value);
// Python's len(); throws where Python does.
int64_t lengthOf(Runtime& rt, const Value& value);
bool contains(Runtime& rt, const Value& container, const Value& item);

Value binaryOperation(Runtime& rt, Op op, const Value& a, const Value& b);
Value unaryOperation(Runtime& rt, Op op, const Value& v);
bool compareValues(Runtime& rt, Op op, const Value& a, const Value& b);
Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);
Value percentFormat(Runtime& rt, std::string_view format, const Value& arguments);

// object.name and object[key]; Undefined if there is no such attribute or item, and for every name that begins with __.
// The bytes of name must live as long as Value::ofText requires.
Value attributeOf(Runtime& rt, const Value& object, std::string_view name);
Value subscriptOf(Runtime& rt, const Value& object, const Value& key);
// Calls a method of a built-in type; returns nullopt if the type has no such method.
std::optional<Value> callMethod(Runtime& rt, const Value& self, std::string_view name, CallArgs& args);
bool hasMethod(const Value& self, std::string_view name);
Value call(Runtime& rt, const Value& callee, CallArgs& args);

Value applyFilter(Runtime& rt, std::string_view name, const Value& input, CallArgs& args);
bool applyTest(Runtime& rt, std::string_view name, const Value& input, CallArgs& args);
bool hasFilter(std::string_view name);
bool hasTest(std::string_view name);

// Sorts pairs of a key and an item by key; stable. Throws TemplateError if keys can't be ordered.
void sortPairs(Runtime& rt, std::span<Dict::Entry> pairs, bool reverse);

// The value as Python's str() and repr() print it; a string is its own str().
Value str(Runtime& rt, const Value& value);
Value repr(Runtime& rt, const Value& value);
// Like Python's json.dumps; indent None prints one line.
Value toJson(Runtime& rt, const Value& value, const Value& indent, const Value& separators, bool ascii, bool sort_keys);

// The functions that every template can call, such as range, dict and raise_exception.
std::span<const Function> globalFunctions();

// The names of all operations, for tests that must cover every one.
struct MethodNames {
  std::vector<std::string_view> of_text, of_list, of_dict, of_loop;
};
MethodNames methodNames();
std::vector<std::string_view> filterNames();
std::vector<std::string_view> testNames();

}  // namespace chorus::tmpl
