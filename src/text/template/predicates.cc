// The tests that follow "is".
#include <map>

#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

using Test = bool (*)(Runtime&, const Value&, CallArgs&);

const Value& argument(const CallArgs& args) {
  if (args.positional.size() != 1 || !args.named.empty()) raise("this test takes one argument");
  return args.positional[0];
}

template <Op kOp>
bool comparison(Runtime& rt, const Value& v, CallArgs& args) {
  return compareValues(rt, kOp, v, argument(args));
}

// Whether v % by == rest.
bool hasRest(Runtime& rt, const Value& v, const Value& by, int64_t rest) {
  return equals(rt, binaryOperation(rt, Op::kMod, v, by), Value(rest));
}

// An undefined value is callable in Python, although each call of it fails.
bool isCallable(Runtime&, const Value& v, CallArgs&) {
  return v.kind() == Kind::kFunction || v.kind() == Kind::kLoop || v.isUndefined();
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> table = {
      {"defined", [](Runtime&, const Value& v, CallArgs&) { return !v.isUndefined(); }},
      {"undefined", [](Runtime&, const Value& v, CallArgs&) { return v.isUndefined(); }},
      {"none", [](Runtime&, const Value& v, CallArgs&) { return v.isNone(); }},
      {"boolean", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kBool; }},
      {"true", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kBool && v.boolean(); }},
      {"false", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kBool && !v.boolean(); }},
      {"integer", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kInt || v.isWideInteger(); }},
      {"float", [](Runtime&, const Value& v, CallArgs&) { return v.kind() == Kind::kFloat; }},
      {"number", [](Runtime&, const Value& v, CallArgs&) { return v.isNumber() || v.isWideInteger(); }},
      {"string", [](Runtime&, const Value& v, CallArgs&) { return v.isString(); }},
      {"mapping", [](Runtime&, const Value& v, CallArgs&) { return v.isDict(); }},
      {"iterable",
       [](Runtime&, const Value& v, CallArgs&) {
         return v.isString() || v.isSequence() || v.isDict() || v.isUndefined() || v.kind() == Kind::kLoop;
       }},
      // True for values with a length and subscripts. Undefined has both; the views of a dict have no subscripts.
      {"sequence",
       [](Runtime&, const Value& v, CallArgs&) {
         return v.isString() || v.isDict() || v.isUndefined() ||
                (v.isSequence() && v.sequence().flavor() <= Sequence::Flavor::kRange);
       }},
      {"callable", isCallable},
      {"sameas",
       [](Runtime& rt, const Value& v, CallArgs& args) {
         const Value& other = argument(args);
         if (v.kind() != other.kind()) return false;
         return v.identity() != nullptr ? v.identity() == other.identity() : equals(rt, v, other);
       }},
      {"in", [](Runtime& rt, const Value& v, CallArgs& args) { return contains(rt, argument(args), v); }},
      {"even", [](Runtime& rt, const Value& v, CallArgs&) { return hasRest(rt, v, Value(int64_t{2}), 0); }},
      {"odd", [](Runtime& rt, const Value& v, CallArgs&) { return hasRest(rt, v, Value(int64_t{2}), 1); }},
      {"divisibleby", [](Runtime& rt, const Value& v, CallArgs& args) { return hasRest(rt, v, argument(args), 0); }},
      {"lower",
       [](Runtime& rt, const Value& v, CallArgs&) { return hasOnlyCase(rt, str(rt, v).string(), Case::kLower); }},
      {"upper",
       [](Runtime& rt, const Value& v, CallArgs&) { return hasOnlyCase(rt, str(rt, v).string(), Case::kUpper); }},
      {"escaped", [](Runtime&, const Value&, CallArgs&) { return false; }},
      {"filter", [](Runtime&, const Value& v, CallArgs&) { return v.isString() && hasFilter(v.string()); }},
      {"test", [](Runtime&, const Value& v, CallArgs&) { return v.isString() && hasTest(v.string()); }},
      {"eq", comparison<Op::kEq>},
      {"==", comparison<Op::kEq>},
      {"equalto", comparison<Op::kEq>},
      {"ne", comparison<Op::kNe>},
      {"!=", comparison<Op::kNe>},
      {"lt", comparison<Op::kLt>},
      {"<", comparison<Op::kLt>},
      {"lessthan", comparison<Op::kLt>},
      {"le", comparison<Op::kLe>},
      {"<=", comparison<Op::kLe>},
      {"gt", comparison<Op::kGt>},
      {">", comparison<Op::kGt>},
      {"greaterthan", comparison<Op::kGt>},
      {"ge", comparison<Op::kGe>},
      {">=", comparison<Op::kGe>},
  };
  return table;
}
}  // namespace

bool hasTest(std::string_view name) { return tests().contains(name); }

bool applyTest(Runtime& rt, std::string_view name, const Value& input, CallArgs& args) {
  rt.step();
  const auto it = tests().find(name);
  if (it == tests().end()) raise("No test named '{}'.", printable(name));
  return it->second(rt, input, args);
}

std::vector<std::string_view> testNames() {
  std::vector<std::string_view> names;
  for (const auto& entry : tests()) names.push_back(entry.first);
  return names;
}

}  // namespace chorus::tmpl
