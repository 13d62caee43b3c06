// What a running template may use and spend, and the operations on values that can spend it.
#pragma once

#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace chorus::tmpl {

// Bounds on one rendering; each one exceeded is an error.
struct Limits {
  int64_t max_steps = 2'000'000;        // expressions and statements evaluated, items visited
  size_t max_bytes = size_t{64} << 20;  // of all text and values made
  int max_depth = 400;                  // of evaluation
  int64_t max_range = 100'000;
};

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  Value* findHere(std::string_view name);
  Value* find(std::string_view name);
  void set(std::string_view name, Value value);
};

class Runtime {
 public:
  Runtime(const Limits& limits, std::time_t now) : limits_(limits), now_(now) {}
  // Frees what may hold itself: namespaces, and the scopes that macros close over.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  void step(int64_t count = 1) {
    if ((steps_ += count) > limits_.max_steps)
      raise("more than {} steps; the template does too much", limits_.max_steps);
  }
  void charge(size_t bytes) {
    if (bytes > limits_.max_bytes || (bytes_ += bytes) > limits_.max_bytes) {
      raise("more than {} bytes of text and values", limits_.max_bytes);
    }
  }
  std::string charged(std::string text) {
    charge(text.size());
    return text;
  }
  const Limits& limits() const { return limits_; }
  std::time_t now() const { return now_; }

  void keepNamespace(std::shared_ptr<Dict> dict) { namespaces_.push_back(std::move(dict)); }
  void keepScope(const std::shared_ptr<Scope>& scope);

  // One level deeper while it lives.
  class Deeper {
   public:
    explicit Deeper(Runtime& rt) : rt_(rt) {
      if (++rt_.depth_ > rt_.limits_.max_depth) {
        --rt_.depth_;
        raise("evaluation nests deeper than {} levels", rt_.limits_.max_depth);
      }
    }
    ~Deeper() { --rt_.depth_; }

   private:
    Runtime& rt_;
  };

 private:
  Limits limits_;
  std::time_t now_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<Dict>> namespaces_;
  std::vector<std::shared_ptr<Scope>> scopes_;
};

// Arguments by the names of parameters, absent ones null. Throws on unknown, doubled, missing or too many arguments.
class BoundArgs {
 public:
  BoundArgs(const CallArgs& args, std::string_view function, std::initializer_list<std::string_view> parameters,
            size_t required = 0);
  const Value* operator[](size_t i) const { return values_[i]; }
  int64_t integerOr(size_t i, int64_t fallback) const;
  bool truthOr(size_t i, bool fallback) const { return values_[i] == nullptr ? fallback : truthy(*values_[i]); }
  // Throws when the argument is there and not a string.
  std::string textOr(size_t i, std::string fallback) const;

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

// The items that a for loop or filter visits. Spends a step for each.
std::vector<Value> itemsOf(Runtime& rt, const Value& value);
// Python's len(); throws where Python does.
int64_t lengthOf(const Value& value);
bool contains(Runtime& rt, const Value& container, const Value& item);

Value binaryOperation(Runtime& rt, std::string_view op, const Value& a, const Value& b);
Value unaryOperation(std::string_view op, const Value& v);
bool compareValues(Runtime& rt, std::string_view op, const Value& a, const Value& b);
Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);
std::string percentFormat(Runtime& rt, const std::string& format, const Value& arguments);

// object.name and object[key]; Undefined when there is none. Names of Python's own that begin and end with __ are
// never there.
Value attributeOf(Runtime& rt, const Value& object, const std::string& name);
Value subscriptOf(Runtime& rt, const Value& object, const Value& key);
// Calls a method of a built-in type; nothing when the type has no such method.
std::optional<Value> callMethod(Runtime& rt, const Value& self, std::string_view name, CallArgs& args);
bool hasMethod(const Value& self, std::string_view name);
Value call(Runtime& rt, const Value& callee, CallArgs& args);

Value applyFilter(Runtime& rt, const std::string& name, const Value& input, CallArgs& args);
bool applyTest(Runtime& rt, const std::string& name, const Value& input, CallArgs& args);
bool hasFilter(std::string_view name);
bool hasTest(std::string_view name);

// As Python's json.dumps; indent null gives one line.
std::string toJson(Runtime& rt, const Value& value, const Value& indent, const Value& separators, bool ascii,
                   bool sort_keys);

// range, dict, namespace, raise_exception, strftime_now.
const std::map<std::string, Value>& globalFunctions();

// Text helpers shared by methods and filters; positions are in characters.
std::vector<std::string> characters(const std::string& text);
std::string stripText(const std::string& text, const Value* chars, bool left, bool right);
std::string titleCase(const std::string& text);
std::string capitalize(const std::string& text);

}  // namespace chorus::tmpl
