#include "text/template/value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/template/runtime.h"
#include "text/template/wide_integer.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

constexpr int kFirstFlavor = static_cast<int>(Kind::kLoop) + 1;
// Names by Kind, then by Sequence::Flavor.
constexpr std::array<std::string_view, 19> kTypeNames = {
    "Undefined", "NoneType",    "bool",       "int",      "int of more than 64 bits",
    "float",     "str",         "sequence",   "dict",     "Namespace",
    "function",  "LoopContext", "list",       "tuple",    "range",
    "dict_keys", "dict_values", "dict_items", "generator"};

int typeCode(const Value& v) {
  return v.isSequence() ? kFirstFlavor + static_cast<int>(v.sequence().flavor()) : static_cast<int>(v.kind());
}

int deeper(int depth) {
  if (depth + 1 > kMaxValueDepth) raise("values nest deeper than {} levels", kMaxValueDepth);
  return depth + 1;
}

int depthAbove(std::span<const Value> values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  return deeper(depth);
}
}  // namespace

Value::Value(Dict* v) : kind_(v->isNamespace() ? Kind::kNamespace : Kind::kDict), dict_(v) {}

Value Value::ofText(std::string_view text) {
  if (text.size() > UINT32_MAX) raise("a text has {} bytes; the limit is {}", text.size(), UINT32_MAX);
  Value value;
  value.kind_ = Kind::kString;
  value.length_ = static_cast<uint32_t>(text.size());
  value.text_ = text.data();
  return value;
}

Value Value::wideInteger(std::string_view digits) {
  Value value = ofText(digits);
  value.kind_ = Kind::kWideInt;
  return value;
}

Value Value::undefined(Hint hint, std::string_view name, const Value* object) {
  Value value = ofText(name);
  value.kind_ = Kind::kUndefined;
  value.extra_ = static_cast<uint8_t>(static_cast<int>(hint) | (object == nullptr ? 0 : typeCode(*object) << 3));
  return value;
}

int Value::depth() const {
  switch (kind_) {
    case Kind::kSequence:
      return sequence_->depth();
    case Kind::kDict:
    case Kind::kNamespace:
      return dict_->depth();
    case Kind::kFunction:
      return function_->depth();
    case Kind::kLoop:
      return loop_->depth();
    default:
      return 0;
  }
}

Value Sequence::make(Runtime& rt, Flavor flavor, std::span<const Value> items) {
  rt.charge(sizeof(Sequence) + items.size_bytes());
  return Value(rt.objects().make<Sequence>(flavor, items, depthAbove(items)));
}

Value Sequence::makeGroup(Runtime& rt, const Value& grouper, const Value& list) {
  const std::span<Value> items = rt.newValues(2);
  items[0] = grouper;
  items[1] = list;
  auto* const group = rt.objects().make<Sequence>(Flavor::kTuple, items, depthAbove(items));
  group->is_group_ = true;
  return Value(group);
}

Value Sequence::makeRange(Runtime& rt, int64_t start, int64_t stop, int64_t step, size_t count) {
  rt.charge(sizeof(Sequence));
  auto* const range = rt.objects().make<Sequence>(Flavor::kRange, std::span<const Value>(), 1);
  range->size_ = count;
  range->start_ = start;
  range->stop_ = stop;
  range->step_ = step;
  return Value(range);
}

Value Function::make(Runtime& rt, std::string_view name, Call call, std::span<const Value> captures,
                     uint64_t* counter) {
  rt.charge(sizeof(Function) + captures.size_bytes());
  auto* const function = rt.objects().make<Function>(name, call);
  function->captures_ = captures;
  function->counter_ = counter;
  function->depth_ = depthAbove(captures);
  return Value(function);
}

Value Function::makeMacro(Runtime& rt, std::string_view name, Call call, const void* code, Scope* scope,
                          std::span<const Value> parameter_names) {
  const Value macro = make(rt, name, call, parameter_names);
  auto& function = const_cast<Function&>(macro.function());
  function.code_ = code;
  function.scope_ = scope;
  return macro;
}

LoopState* LoopState::make(Runtime& rt, const Value& items, int64_t level, const void* code, Scope* scope) {
  rt.charge(sizeof(LoopState));
  return rt.objects().make<LoopState>(items, level, code, scope, deeper(items.depth()));
}

bool LoopState::changed(Runtime& rt, std::span<const Value> values) {
  bool same = has_last_ && last_.size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) same = equals(rt, last_[i], values[i]);
  has_last_ = true;
  last_ = values;
  depth_ = std::max(depth_, depthAbove(values));
  return !same;
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.integer() != 0;
    case Kind::kFloat:
      return v.number() != 0;
    case Kind::kWideInt:
      return true;
    case Kind::kString:
      return !v.string().empty();
    case Kind::kSequence:
      return v.sequence().flavor() == Sequence::Flavor::kGenerator || !v.sequence().empty();
    case Kind::kDict:
      return v.dict().size() > 0;
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kLoop:
      return true;
  }
  return true;
}

bool equals(Runtime& rt, const Value& a, const Value& b) {
  rt.charge(sizeof(Value));
  if (a.isWideInteger() != b.isWideInteger()) return wideEqualsFloat(rt, a, b) || wideEqualsFloat(rt, b, a);
  if (a.isNumber() && b.isNumber()) {
    return a.isInteger() && b.isInteger() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kWideInt:
      if (a.string().size() != b.string().size()) return false;
      rt.charge(a.string().size());
      return a.string() == b.string();
    case Kind::kSequence: {
      const Sequence &x = a.sequence(), &y = b.sequence();
      if (&x == &y) return true;
      using Flavor = Sequence::Flavor;
      if (x.flavor() != y.flavor() || x.flavor() == Flavor::kGenerator || x.flavor() == Flavor::kValues) return false;
      if (x.size() != y.size()) return false;
      rt.checkStack();
      for (size_t i = 0; i < x.size(); ++i) {
        if (!equals(rt, x.at(i), y.at(i))) return false;
      }
      return true;
    }
    case Kind::kDict: {
      const Dict &x = a.dict(), &y = b.dict();
      if (x.size() != y.size()) return false;
      rt.checkStack();
      for (const auto& [key, value] : x.entries()) {
        const Value* other = y.find(rt, key);
        if (other == nullptr || !equals(rt, value, *other)) return false;
      }
      return true;
    }
    default:
      return a.identity() == b.identity();
  }
}

bool lessThan(Runtime& rt, const Value& a, const Value& b) {
  rt.charge(sizeof(Value));
  requireDefined(a);
  requireDefined(b);
  if ((a.isWideInteger() && (b.isWideInteger() || b.isNumber())) || (b.isWideInteger() && a.isNumber())) {
    return wideLess(rt, a, b);
  }
  if (a.isNumber() && b.isNumber()) {
    return a.isInteger() && b.isInteger() ? a.integer() < b.integer() : a.number() < b.number();
  }
  if (a.isString() && b.isString()) {
    rt.charge(std::min(a.string().size(), b.string().size()));
    return a.string() < b.string();
  }
  if (a.isSequence() && b.isSequence() && a.sequence().flavor() == b.sequence().flavor() &&
      a.sequence().isListOrTuple()) {
    rt.checkStack();
    const auto x = a.sequence().items(), y = b.sequence().items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(rt, x[i], y[i])) return lessThan(rt, x[i], y[i]);
    }
    return x.size() < y.size();
  }
  raise("'<' not supported between instances of '{}' and '{}'", typeName(a), typeName(b));
}

std::string_view typeName(const Value& v) { return kTypeNames[static_cast<size_t>(typeCode(v))]; }

void requireDefined(const Value& value) {
  if (!value.isUndefined()) return;
  const std::string_view raw(value.text_, value.length_);
  const std::string name = printable(raw);
  const std::string_view type = kTypeNames[static_cast<size_t>(value.extra_ >> 3)];
  switch (value.hint()) {
    case Hint::kName:
      raise("'{}' is undefined", name);
    case Hint::kAttribute:
      raise("'{} object' has no attribute '{}'", type, name);
    case Hint::kNoneAttribute:
      raise("'None' has no attribute '{}'", name);
    case Hint::kElement:
      raise("{} has no element {}", type, name);
    case Hint::kUnsafe:
      raise("access to attribute '{}' is unsafe", name);
    case Hint::kChangesDict:
      raise("'{}' isn't available, because templates can't change a dict", name);
    case Hint::kParameter:
      raise("parameter '{}' was not provided", name);
    case Hint::kText:
      raise("{}", raw);
  }
}

}  // namespace chorus::tmpl
