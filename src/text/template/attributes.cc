// Evaluates object.name and object[key].
#include <algorithm>

#include "text/template/runtime.h"
#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

std::optional<Value> loopAttribute(const LoopState& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index()), length = static_cast<int64_t>(loop.items().size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(loop.level());
  if (name == "depth0") return Value(loop.level() - 1);
  if (name == "previtem") {
    return index > 0 ? loop.items().at(loop.index() - 1) : Value::undefined(Hint::kText, "there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items().at(loop.index() + 1)
                              : Value::undefined(Hint::kText, "there is no next item");
  }
  return std::nullopt;
}

Value boundMethod(Runtime& rt, const Value& object, std::string_view name) {
  const std::span<Value> captures = rt.newValues(1);
  captures[0] = object;
  return Function::make(
      rt, name,
      [](Runtime& runtime, const Function& self, CallArgs& args) {
        return *callMethod(runtime, self.captures()[0], self.name(), args);
      },
      captures);
}
}  // namespace

Value attributeOf(Runtime& rt, const Value& object, std::string_view name) {
  rt.charge(sizeof(Value) + std::min<size_t>(name.size(), 64));
  requireDefined(object);
  if (name.starts_with("__")) return Value::undefined(Hint::kUnsafe, name);
  if (object.kind() == Kind::kNamespace) {
    if (const Value* value = object.dict().find(rt, Value::ofText(name))) return *value;
  } else if (object.kind() == Kind::kLoop) {
    if (const auto value = loopAttribute(object.loop(), name)) return *value;
  } else if (object.isSequence() && object.sequence().isGroup()) {
    if (name == "grouper") return object.sequence().at(0);
    if (name == "list") return object.sequence().at(1);
  } else if (object.kind() == Kind::kFunction) {
    if (name == "name") return Value::ofText(object.function().name());
    if (name == "arguments") {
      const bool macro = object.function().code() != nullptr;
      return Sequence::make(rt, Sequence::Flavor::kTuple,
                            macro ? object.function().captures() : std::span<const Value>());
    }
  }
  if (hasMethod(object, name)) return boundMethod(rt, object, name);
  if (object.isDict()) {
    for (const std::string_view changes : {"clear", "pop", "popitem", "setdefault", "update"}) {
      if (name == changes) return Value::undefined(Hint::kChangesDict, name);
    }
    if (const Value* value = object.dict().find(rt, Value::ofText(name))) return *value;
  }
  return Value::undefined(object.isNone() ? Hint::kNoneAttribute : Hint::kAttribute, name, &object);
}

Value subscriptOf(Runtime& rt, const Value& object, const Value& key) {
  rt.charge(sizeof(Value));
  requireDefined(object);
  if (object.isDict()) {
    // Jinja finds nothing under a value that can't be a key.
    const bool can_be_key = !key.isDict() && (!key.isSequence() || key.sequence().flavor() == Sequence::Flavor::kTuple);
    const Value* const value = can_be_key ? object.dict().find(rt, key) : nullptr;
    if (value != nullptr) return *value;
  } else if (key.isInteger() && object.isSequence() && object.sequence().flavor() <= Sequence::Flavor::kRange) {
    const auto length = static_cast<int64_t>(object.sequence().size());
    const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index >= 0 && index < length) return object.sequence().at(static_cast<size_t>(index));
  } else if (key.isInteger() && object.isString()) {
    const std::string_view text = object.string();
    const int64_t length = lengthOf(rt, object);
    const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index >= 0 && index < length) {
      const size_t at = byteOffset(rt, text, static_cast<size_t>(index));
      return Value::ofText(text.substr(at, static_cast<size_t>(utf8Length(text[at]))));
    }
  }
  if (key.isString()) return attributeOf(rt, object, key.string());
  const Value shown = key.isNumber() || key.isNone() ? repr(rt, key) : Value::ofText(typeName(key));
  return Value::undefined(Hint::kElement, shown.string(), &object);
}

}  // namespace chorus::tmpl
