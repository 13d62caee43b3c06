#include "text/template/runtime.h"

#include <algorithm>

#include "text/unicode.h"

namespace chorus::tmpl {

Value* Scope::findHere(std::string_view name) {
  for (auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value* Scope::find(std::string_view name) {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    if (Value* value = scope->findHere(name)) return value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  if (Value* here = findHere(name))
    *here = std::move(value);
  else
    variables.emplace_back(std::string(name), std::move(value));
}

Runtime::~Runtime() {
  // First everything is taken out, then freed: no chain is freed by recursion.
  std::vector<std::pair<Value, Value>> entries;
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& dict : namespaces_) {
    std::move(dict->entries.begin(), dict->entries.end(), std::back_inserter(entries));
    dict->entries.clear();
  }
  for (const auto& scope : scopes_) {
    std::move(scope->variables.begin(), scope->variables.end(), std::back_inserter(variables));
    scope->variables.clear();
  }
}

void Runtime::keepScope(const std::shared_ptr<Scope>& scope) {
  if (scopes_.empty() || scopes_.back() != scope) scopes_.push_back(scope);
}

BoundArgs::BoundArgs(const CallArgs& args, std::string_view function,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function), values_(parameters.size(), nullptr) {
  if (args.positional.size() > values_.size()) {
    raise("{}() takes at most {} arguments ({} given)", function, values_.size(), args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) raise("{}() got an unexpected keyword argument '{}'", function, printable(name));
    const Value*& slot = values_[static_cast<size_t>(it - parameters.begin())];
    if (slot != nullptr) raise("{}() got multiple values for argument '{}'", function, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) raise("{}() misses the argument '{}'", function, *(parameters.begin() + i));
  }
}

int64_t BoundArgs::integerOr(size_t i, int64_t fallback) const {
  if (values_[i] == nullptr) return fallback;
  requireDefined(*values_[i]);
  if (!values_[i]->isInteger()) raise("{}() needs an integer, not {}", function_, typeName(*values_[i]));
  return values_[i]->integer();
}

std::string BoundArgs::textOr(size_t i, std::string fallback) const {
  if (values_[i] == nullptr) return fallback;
  requireDefined(*values_[i]);
  if (!values_[i]->isString()) raise("{}() needs a str, not {}", function_, typeName(*values_[i]));
  return values_[i]->string();
}

std::vector<Value> itemsOf(Runtime& rt, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kSequence: {
      const Sequence& sequence = value.sequence();
      if (sequence.flavor == Sequence::Flavor::kGenerator) {
        if (sequence.consumed) break;
        sequence.consumed = true;
      }
      items = sequence.items;
      break;
    }
    case Kind::kDict:
      for (const auto& entry : value.dict()->entries) items.push_back(entry.first);
      break;
    case Kind::kString:
      rt.charge(value.string().size() * 32);
      for (auto& c : characters(value.string())) items.emplace_back(std::move(c));
      break;
    default:
      raise("'{}' object is not iterable", typeName(value));
  }
  rt.step(static_cast<int64_t>(items.size()));
  rt.charge(items.size() * sizeof(Value));
  return items;
}

int64_t lengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(countCharacters(value.string()));
    case Kind::kDict:
      return static_cast<int64_t>(value.dict()->entries.size());
    case Kind::kSequence:
      if (value.sequence().flavor != Sequence::Flavor::kGenerator) {
        return static_cast<int64_t>(value.sequence().items.size());
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
      rt.step(static_cast<int64_t>(container.string().size() / 64));
      return container.string().find(item.string()) != std::string::npos;
    case Kind::kDict:
      return container.dict()->find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kSequence: {
      rt.step(static_cast<int64_t>(container.sequence().items.size()) + container.weight() / 16);
      const auto& items = container.sequence().items;
      return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equals(item, other); });
    }
    default:
      raise("argument of type '{}' is not iterable", typeName(container));
  }
}

Value attributeOf(Runtime& rt, const Value& object, const std::string& name) {
  requireDefined(object);
  if (name.starts_with("__"))
    return Value::undefined(fmt::format("access to attribute '{}' is unsafe", printable(name)));
  if (object.kind() == Kind::kNamespace) {
    if (const Value* value = object.dict()->findText(name)) return *value;
  } else if (object.kind() == Kind::kLoop) {
    LoopState& loop = *object.loop();
    const auto index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(loop.items.size());
    if (name == "index") return Value(index + 1);
    if (name == "index0") return Value(index);
    if (name == "revindex") return Value(length - index);
    if (name == "revindex0") return Value(length - index - 1);
    if (name == "first") return Value(index == 0);
    if (name == "last") return Value(index + 1 == length);
    if (name == "length") return Value(length);
    if (name == "depth") return Value(loop.level);
    if (name == "depth0") return Value(loop.level - 1);
    if (name == "previtem")
      return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return index + 1 < length ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  } else if (object.isSequence() && object.sequence().is_group) {
    if (name == "grouper") return object.sequence().items[0];
    if (name == "list") return object.sequence().items[1];
  } else if (object.kind() == Kind::kFunction) {
    if (name == "name") return Value(object.function()->name);
    if (name == "arguments") {
      const auto& names = object.function()->arguments;
      return makeTuple(std::vector<Value>(names.begin(), names.end()));
    }
  }
  if (hasMethod(object, name)) {
    return makeFunction(
        name, [object, name](Runtime& runtime, CallArgs& args) { return *callMethod(runtime, object, name, args); },
        object.depth() + 1);
  }
  if (object.isDict()) {
    for (const std::string_view changes : {"clear", "pop", "popitem", "setdefault", "update"}) {
      if (name == changes)
        return Value::undefined(fmt::format("'{}' would change a dict, which templates can't", name));
    }
    if (const Value* value = object.dict()->findText(name)) return *value;
  }
  (void)rt;
  return Value::undefined(object.isNone()
                              ? fmt::format("'None' has no attribute '{}'", printable(name))
                              : fmt::format("'{} object' has no attribute '{}'", typeName(object), printable(name)));
}

Value subscriptOf(Runtime& rt, const Value& object, const Value& key) {
  requireDefined(object);
  if (object.isDict()) {
    if (const Value* value = object.dict()->find(key)) return *value;
  } else if (key.isInteger() && (object.isString() || object.isSequence())) {
    const bool text = object.isString();
    using Flavor = Sequence::Flavor;
    if (text || object.sequence().flavor <= Flavor::kRange) {
      const int64_t length = lengthOf(object);
      const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
      if (index >= 0 && index < length) {
        if (!text) return object.sequence().items[static_cast<size_t>(index)];
        rt.step(length / 64);
        size_t at = 0;
        for (int64_t i = 0; i < index; ++i) at += static_cast<size_t>(utf8Length(object.string()[at]));
        return Value(object.string().substr(at, static_cast<size_t>(utf8Length(object.string()[at]))));
      }
    }
  }
  if (key.isString()) return attributeOf(rt, object, key.string());
  return Value::undefined(fmt::format("{} has no element {}", typeName(object), printable(repr(key))));
}

Value call(Runtime& rt, const Value& callee, CallArgs& args) {
  requireDefined(callee);
  if (callee.kind() == Kind::kLoop) {
    const BoundArgs a(args, "loop", {"iterable"}, 1);
    const auto loop = callee.loop();
    if (!loop->recurse) raise("The loop must have the 'recursive' marker to be called recursively.");
    const Runtime::Deeper deeper(rt);
    return loop->recurse(*a[0]);
  }
  if (callee.kind() != Kind::kFunction) raise("'{}' object is not callable", typeName(callee));
  const Runtime::Deeper deeper(rt);
  const auto function = callee.function();
  return function->call(rt, args);
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    const auto n = static_cast<size_t>(utf8Length(text[i]));
    out.push_back(text.substr(i, n));
    i += n;
  }
  return out;
}

std::string stripText(const std::string& text, const Value* chars, bool left, bool right) {
  if (chars != nullptr && chars->isNone()) chars = nullptr;
  if (chars != nullptr && !chars->isString()) raise("strip arg must be None or str");
  const auto strips = [&](std::string_view c) {
    if (chars != nullptr) return chars->string().find(c) != std::string::npos;
    const uint32_t code = decodeUtf8(c).code;
    return isUnicodeSpace(code) || (code >= 0x1C && code <= 0x1F);
  };
  std::string_view view = text;
  while (left && !view.empty()) {
    const auto n = static_cast<size_t>(utf8Length(view[0]));
    if (!strips(view.substr(0, n))) break;
    view.remove_prefix(n);
  }
  while (right && !view.empty()) {
    size_t start = view.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(view[start]) & 0xC0) == 0x80) --start;
    if (!strips(view.substr(start))) break;
    view = view.substr(0, start);
  }
  return std::string(view);
}

std::string capitalize(const std::string& text) {
  if (text.empty()) return {};
  const auto first = static_cast<size_t>(utf8Length(text[0]));
  std::string head = toUpper(text.substr(0, first));
  if (head == "SS") head = "Ss";
  return head + toLower(text.substr(first));
}

std::string titleCase(const std::string& text) {
  std::string out;
  bool in_word = false;
  for (const std::string& c : characters(text)) {
    const std::string lower = toLower(c), upper = toUpper(c);
    const bool cased = lower != upper;
    out += !cased ? c : in_word ? lower : upper;
    in_word = cased;
  }
  return out;
}

}  // namespace chorus::tmpl
