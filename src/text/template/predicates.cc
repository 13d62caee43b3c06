// The tests that follow "is".
#include <cctype>

#include "text/template/runtime.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

using Test = bool (*)(Runtime&, const Value&, CallArgs&);

const Value& argument(const CallArgs& args) {
  if (args.positional.size() != 1 || !args.named.empty()) raise("this test takes one argument");
  return args.positional[0];
}

template <char kFirst, char kSecond>
bool comparison(Runtime& rt, const Value& v, CallArgs& args) {
  static constexpr char kOp[] = {kFirst, kSecond, '\0'};
  return compareValues(rt, kSecond == ' ' ? std::string_view(kOp, 1) : std::string_view(kOp), v, argument(args));
}

int64_t integerOf(const Value& v) {
  requireDefined(v);
  if (!v.isInteger()) raise("this test needs an integer, not {}", typeName(v));
  return v.integer();
}

bool isCallable(Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kFunction; }

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> table = {
      {"defined", [](Runtime&, const Value& v, CallArgs&) { return !v.isUndefined(); }},
      {"undefined", [](Runtime&, const Value& v, CallArgs&) { return v.isUndefined(); }},
      {"none", [](Runtime&, const Value& v, CallArgs&) { return v.isNone(); }},
      {"boolean", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kBool; }},
      {"true", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kBool && v.boolean(); }},
      {"false", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kBool && !v.boolean(); }},
      {"integer", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kInt; }},
      {"float", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kFloat; }},
      {"number", [](Runtime&, const Value& v, CallArgs&) { return v.isNumber(); }},
      {"string", [](Runtime&, const Value& v, CallArgs&) { return v.isString(); }},
      {"mapping", [](Runtime&, const Value& v, CallArgs&) { return v.isDict(); }},
      {"iterable",
       [](Runtime&, const Value& v, CallArgs&) {
         return v.isString() || v.isSequence() || v.isDict() || v.isUndefined() || v.kind() == Kind::kLoop;
       }},
      // Whatever has a length and subscripts: Undefined has both, sets of keys have no subscripts.
      {"sequence",
       [](Runtime&, const Value& v, CallArgs&) {
         return v.isString() || v.isDict() || v.isUndefined() ||
                (v.isSequence() && v.sequence().flavor <= Sequence::Flavor::kRange);
       }},
      {"callable", isCallable},
      {"sameas",
       [](Runtime&, const Value& v, CallArgs& args) {
         const Value& other = argument(args);
         if (v.kind() != other.kind()) return false;
         return v.identity() != nullptr && !v.isString() ? v.identity() == other.identity() : equals(v, other);
       }},
      {"in", [](Runtime& rt, const Value& v, CallArgs& args) { return contains(rt, argument(args), v); }},
      {"even", [](Runtime&, const Value& v, CallArgs&) { return integerOf(v) % 2 == 0; }},
      {"odd", [](Runtime&, const Value& v, CallArgs&) { return integerOf(v) % 2 != 0; }},
      {"divisibleby",
       [](Runtime&, const Value& v, CallArgs& args) {
         const int64_t by = integerOf(argument(args)), number = integerOf(v);
         if (by == 0) raise("integer division or modulo by zero");
         return by == -1 || number % by == 0;
       }},
      {"lower",
       [](Runtime&, const Value& v, CallArgs&) {
         const std::string text = str(v);
         return toLower(text) == text && toUpper(text) != text;
       }},
      {"upper",
       [](Runtime&, const Value& v, CallArgs&) {
         const std::string text = str(v);
         return toUpper(text) == text && toLower(text) != text;
       }},
      {"escaped", [](Runtime&, const Value&, CallArgs&) { return false; }},
      {"filter", [](Runtime&, const Value& v, CallArgs&) { return v.isString() && hasFilter(v.string()); }},
      {"test", [](Runtime&, const Value& v, CallArgs&) { return v.isString() && hasTest(v.string()); }},
      {"eq", comparison<'=', '='>},
      {"==", comparison<'=', '='>},
      {"equalto", comparison<'=', '='>},
      {"ne", comparison<'!', '='>},
      {"!=", comparison<'!', '='>},
      {"lt", comparison<'<', ' '>},
      {"<", comparison<'<', ' '>},
      {"lessthan", comparison<'<', ' '>},
      {"le", comparison<'<', '='>},
      {"<=", comparison<'<', '='>},
      {"gt", comparison<'>', ' '>},
      {">", comparison<'>', ' '>},
      {"greaterthan", comparison<'>', ' '>},
      {"ge", comparison<'>', '='>},
      {">=", comparison<'>', '='>},
  };
  return table;
}
}  // namespace

bool hasTest(std::string_view name) { return tests().contains(name); }

bool applyTest(Runtime& rt, const std::string& name, const Value& input, CallArgs& args) {
  const auto it = tests().find(name);
  if (it == tests().end()) raise("No test named '{}'.", printable(name));
  return it->second(rt, input, args);
}

}  // namespace chorus::tmpl
