// Values of chat templates: Python's, as far as templates can see them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace chorus::tmpl {

class Value;
class Runtime;
struct Sequence;
struct Dict;
struct Function;
struct LoopState;

enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kSequence, kDict, kNamespace, kFunction, kLoop };

struct Undefined {
  std::shared_ptr<const std::string> hint;  // what a use of it reports
};

// A template error; the renderer adds the line.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

class Value {
 public:
  Value() : data_(std::monostate{}) {}  // None
  Value(bool v) : data_(v) {}
  Value(int64_t v) : data_(v) {}
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(Undefined v) : data_(std::move(v)) {}
  Value(std::shared_ptr<Sequence> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<Dict> v);  // a dict or a namespace
  Value(std::shared_ptr<Function> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<LoopState> v) : data_(std::move(v)) {}

  static Value undefined(std::string hint) {
    return Value(Undefined{std::make_shared<const std::string>(std::move(hint))});
  }

  Kind kind() const;
  bool isUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool isNone() const { return std::holds_alternative<std::monostate>(data_); }
  bool isString() const { return kind() == Kind::kString; }
  bool isSequence() const { return kind() == Kind::kSequence; }
  bool isDict() const { return kind() == Kind::kDict; }
  // Booleans are integers, as in Python.
  bool isInteger() const { return kind() == Kind::kInt || kind() == Kind::kBool; }
  bool isNumber() const { return isInteger() || kind() == Kind::kFloat; }

  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return kind() == Kind::kBool ? static_cast<int64_t>(boolean()) : std::get<int64_t>(data_); }
  double number() const { return kind() == Kind::kFloat ? std::get<double>(data_) : static_cast<double>(integer()); }
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<Sequence>>(data_); }
  const std::shared_ptr<Dict>& dict() const { return std::get<std::shared_ptr<Dict>>(data_); }
  const std::shared_ptr<Function>& function() const { return std::get<std::shared_ptr<Function>>(data_); }
  const std::shared_ptr<LoopState>& loop() const { return std::get<std::shared_ptr<LoopState>>(data_); }
  const std::string& hint() const { return *std::get<Undefined>(data_).hint; }
  // The object behind a list, dict or function, for identity.
  const void* identity() const;

  // How deep values nest below this one; bounded, so that walking and freeing a value can recurse.
  int depth() const;
  // How much printing or comparing this value costs: values below it, long texts counting more. Bounded as well, for
  // a short template can make a list of itself twice over and over.
  int64_t weight() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const std::string>, Undefined,
               std::shared_ptr<Sequence>, std::shared_ptr<Dict>, std::shared_ptr<Function>, std::shared_ptr<LoopState>>
      data_;
};

inline constexpr int kMaxValueDepth = 150;
inline constexpr int64_t kMaxValueWeight = 4'000'000;

struct Sequence {
  enum class Flavor { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };
  Flavor flavor = Flavor::kList;
  std::vector<Value> items;
  int64_t start = 0, stop = 0, step = 1;  // of a range, for printing
  mutable bool consumed = false;          // a generator gives its items once
  mutable bool is_group = false;          // a tuple of groupby, whose parts are also called grouper and list
  int depth = 1;
  int64_t weight = 1;
};

// Keys keep the order in which they came.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // by hashKey
  bool is_namespace = false;
  int depth = 1;
  int64_t weight = 1;

  const Value* find(const Value& key) const;
  const Value* findText(std::string_view key) const;
  void set(const Value& key, Value value);
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Function {
  std::string name;
  std::function<Value(Runtime&, CallArgs&)> call;
  int depth = 1;
  std::vector<std::string> arguments;  // of a macro
};

struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  std::vector<Value> changed;  // last arguments of loop.changed
  bool has_changed = false;
  int depth = 1;
  int64_t level = 1;                                 // loop.depth: how often a recursive loop has called itself
  std::function<Value(const Value& items)> recurse;  // loop(items); empty unless the loop is recursive
};

Value makeSequence(Sequence::Flavor flavor, std::vector<Value> items);
inline Value makeList(std::vector<Value> items) { return makeSequence(Sequence::Flavor::kList, std::move(items)); }
inline Value makeTuple(std::vector<Value> items) { return makeSequence(Sequence::Flavor::kTuple, std::move(items)); }
Value makeFunction(std::string name, std::function<Value(Runtime&, CallArgs&)> call, int depth = 1);
// Throws TemplateError on integers that don't fit 64 bits.
Value fromJson(const OrderedJson& json);

bool truthy(const Value& value);
bool equals(const Value& a, const Value& b);
// Python's a < b; throws TemplateError where Python does.
bool lessThan(const Value& a, const Value& b);
// A text that is equal exactly for equal values; throws for values that can't be dict keys.
std::string hashKey(const Value& value);
// Python's name of the type: "str", "int", ...
std::string_view typeName(const Value& value);
// Throws for Undefined, with its hint.
void requireDefined(const Value& value);

std::string str(const Value& value);
std::string repr(const Value& value);
std::string floatRepr(double value);

}  // namespace chorus::tmpl
