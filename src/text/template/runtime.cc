#include "text/template/runtime.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {

Value* Scope::findHere(Runtime& rt, std::string_view name) {
  for (Variable& variable : variables.first(size)) {
    if (rt.sameName(variable.name, name)) return &variable.value;
  }
  return nullptr;
}

Value* Scope::find(Runtime& rt, std::string_view name) {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent) {
    rt.charge(sizeof(std::string_view));
    if (Value* value = scope->findHere(rt, name)) return value;
  }
  return nullptr;
}

void Scope::set(Runtime& rt, std::string_view name, const Value& value) {
  if (Value* here = findHere(rt, name)) {
    *here = value;
    return;
  }
  if (size == variables.size()) {
    rt.charge(2 * size * sizeof(Variable));
    const auto more = rt.objects().array<Variable>(std::max<size_t>(4, 2 * size_t{size}));
    std::copy(variables.begin(), variables.end(), more.begin());
    variables = more;
  }
  variables[size++] = {name, value};
}

void Scope::capture() {
  for (Scope* scope = this; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

void Runtime::allowForInput(size_t bytes) {
  const auto times = [&](uint64_t factor) { return bytes < UINT64_MAX / (factor + 1) ? bytes * factor : UINT64_MAX; };
  work_.raiseLimit(times(limits_.work_per_byte));
  memory_.raise(times(limits_.memory_per_byte));
}

Value Runtime::text(std::string_view text) {
  charge(text.size());
  return Value::ofText(texts_.copy(text));
}

Value Runtime::validText(std::string_view bytes) {
  charge(2 * bytes.size());
  return isUtf8(bytes) ? Value::ofText(bytes) : text(toValidUtf8(bytes));
}

char* Runtime::newText(size_t bytes) {
  charge(bytes);
  return static_cast<char*>(texts_.allocate(std::max<size_t>(bytes, 1), 1));
}

Value Runtime::concat(std::string_view a, std::string_view b) {
  if (b.empty()) return Value::ofText(a);
  if (a.empty()) return Value::ofText(b);
  charge(a.size() + b.size());
  char* const joined = texts_.extend(a, b.size());
  std::copy(b.begin(), b.end(), joined + a.size());
  return Value::ofText({joined, a.size() + b.size()});
}

std::span<Value> Runtime::newValues(size_t count) {
  charge(count < UINT64_MAX / sizeof(Value) ? count * sizeof(Value) : UINT64_MAX);
  return objects_.array<Value>(count);
}

BoundArgs::BoundArgs(const CallArgs& args, std::string_view function,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function) {
  if (args.positional.size() > parameters.size()) {
    raise("{}() takes at most {} arguments ({} given)", function, parameters.size(), args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto* const it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) raise("{}() got an unexpected keyword argument '{}'", function, printable(name));
    const Value*& slot = values_[static_cast<size_t>(it - parameters.begin())];
    if (slot != nullptr) raise("{}() got multiple values for argument '{}'", function, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) raise("{}() is missing the required argument '{}'", function, *(parameters.begin() + i));
  }
}

int64_t BoundArgs::integerOr(size_t i, int64_t fallback) const {
  if (values_[i] == nullptr) return fallback;
  requireDefined(*values_[i]);
  if (!values_[i]->isInteger()) raise("{}() needs an integer, not {}", function_, typeName(*values_[i]));
  return values_[i]->integer();
}

std::string_view BoundArgs::textOr(size_t i, std::string_view fallback) const {
  if (values_[i] == nullptr) return fallback;
  requireDefined(*values_[i]);
  if (!values_[i]->isString()) raise("{}() needs a str, not {}", function_, typeName(*values_[i]));
  return values_[i]->string();
}

Items::Items(Runtime& rt, const Value& value) : rt_(rt), value_(value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kSequence:
      if (value.sequence().flavor() != Sequence::Flavor::kGenerator || value.sequence().consume())
        size_ = value.sequence().size();
      break;
    case Kind::kDict:
      size_ = value.dict().size();
      break;
    case Kind::kString:
      size_ = value.string().size();
      break;
    default:
      raise("'{}' object is not iterable", typeName(value));
  }
}

bool Items::next(Value& item) {
  if (at_ >= size_) return false;
  rt_.charge(sizeof(Value));
  if (value_.isSequence()) {
    item = value_.sequence().at(at_++);
  } else if (value_.isDict()) {
    item = value_.dict().entries()[at_++].key;
  } else {
    const auto length = static_cast<size_t>(utf8Length(value_.string()[at_]));
    item = Value::ofText(value_.string().substr(at_, length));
    at_ += length;
  }
  return true;
}

Value sequenceOf(Runtime& rt, const Value& value) {
  using Flavor = Sequence::Flavor;
  if (value.isSequence()) {
    const Sequence& sequence = value.sequence();
    if (sequence.flavor() != Flavor::kGenerator) return value;
    return Sequence::make(rt, Flavor::kList, sequence.consume() ? sequence.items() : std::span<const Value>());
  }
  Items items(rt, value);
  const size_t count = value.isString() ? static_cast<size_t>(lengthOf(rt, value)) : items.left();
  const std::span<Value> made = rt.newValues(count);
  for (size_t i = 0; i < made.size() && items.next(made[i]); ++i) {
  }
  return Sequence::make(rt, Flavor::kList, made);
}

int64_t lengthOf(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(countOf(rt, value.string()));
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop().items().size());
    case Kind::kSequence:
      if (value.sequence().flavor() != Sequence::Flavor::kGenerator) {
        return static_cast<int64_t>(value.sequence().size());
      }
      [[fallthrough]];
    default:
      raise("object of type '{}' has no len()", typeName(value));
  }
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.isString()) raise("'in <string>' requires string as left operand, not {}", typeName(item));
      return TextFinder(rt, item.string()).find(container.string()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict().find(rt, item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kSequence: {
      const Sequence& sequence = container.sequence();
      for (size_t i = 0; i < sequence.size(); ++i) {
        if (equals(rt, item, sequence.at(i))) return true;
      }
      return false;
    }
    default:
      raise("argument of type '{}' is not iterable", typeName(container));
  }
}

Value call(Runtime& rt, const Value& callee, CallArgs& args) {
  requireDefined(callee);
  if (callee.kind() != Kind::kFunction) raise("'{}' object is not callable", typeName(callee));
  const Runtime::Deeper deeper(rt);
  return callee.function().call(rt, args);
}

}  // namespace chorus::tmpl
