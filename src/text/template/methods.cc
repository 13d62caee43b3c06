// Methods of loops, and those methods of Python's built-in collections that don't change them.
#include <algorithm>

#include "text/template/method_table.h"
#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

using Flavor = Sequence::Flavor;

const MethodTable& dictMethods() {
  static const MethodTable table = {
      {"items",
       [](Runtime& rt, const Value& d, CallArgs&) {
         const auto entries = d.dict().entries();
         const std::span<Value> items = rt.newValues(entries.size());
         for (size_t i = 0; i < entries.size(); ++i) {
           const std::span<Value> pair = rt.newValues(2);
           pair[0] = entries[i].key;
           pair[1] = entries[i].value;
           items[i] = Sequence::make(rt, Flavor::kTuple, pair);
         }
         return Sequence::make(rt, Flavor::kItems, items);
       }},
      {"keys", [](Runtime& rt, const Value& d,
                  CallArgs&) { return Sequence::make(rt, Flavor::kKeys, sequenceOf(rt, d).sequence().items()); }},
      {"values",
       [](Runtime& rt, const Value& d, CallArgs&) {
         const auto entries = d.dict().entries();
         const std::span<Value> items = rt.newValues(entries.size());
         for (size_t i = 0; i < entries.size(); ++i) items[i] = entries[i].value;
         return Sequence::make(rt, Flavor::kValues, items);
       }},
      {"get",
       [](Runtime& rt, const Value& d, CallArgs& args) {
         const BoundArgs a(args, "get", {"key", "default"}, 1);
         if (const Value* value = d.dict().find(rt, *a[0])) return *value;
         return a[1] != nullptr ? *a[1] : Value();
       }},
      {"copy", [](Runtime& rt, const Value& d, CallArgs&) { return Value(Dict::copy(rt, d.dict())); }},
  };
  return table;
}

const MethodTable& listMethods() {
  static const MethodTable table = {
      {"index",
       [](Runtime& rt, const Value& l, CallArgs& args) {
         const BoundArgs a(args, "index", {"value", "start", "stop"}, 1);
         const auto size = static_cast<int64_t>(l.sequence().size());
         const auto bound = [&](size_t i, int64_t fallback) {
           const int64_t at = a.integerOr(i, fallback);
           return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
         };
         for (int64_t i = bound(1, 0), stop = bound(2, size); i < stop; ++i) {
           if (equals(rt, l.sequence().at(static_cast<size_t>(i)), *a[0])) return Value(i);
         }
         raise("{} is not in list", printable(repr(rt, *a[0]).string()));
       }},
      {"count",
       [](Runtime& rt, const Value& l, CallArgs& args) {
         const BoundArgs a(args, "count", {"value"}, 1);
         int64_t count = 0;
         for (size_t i = 0; i < l.sequence().size(); ++i) count += equals(rt, l.sequence().at(i), *a[0]);
         return Value(count);
       }},
      {"copy",
       [](Runtime& rt, const Value& l, CallArgs&) { return Sequence::make(rt, Flavor::kList, l.sequence().items()); }},
  };
  return table;
}

const MethodTable& loopMethods() {
  static const MethodTable table = {
      {"cycle",
       [](Runtime&, const Value& self, CallArgs& args) {
         if (args.positional.empty()) raise("no items for cycling given");
         return args.positional[self.loop().index() % args.positional.size()];
       }},
      {"changed",
       [](Runtime& rt, const Value& self, CallArgs& args) { return Value(self.loop().changed(rt, args.positional)); }},
  };
  return table;
}

const MethodTable* methodsOf(const Value& self) {
  switch (self.kind()) {
    case Kind::kString:
      return &textMethods();
    case Kind::kDict:
      return &dictMethods();
    case Kind::kLoop:
      return &loopMethods();
    case Kind::kSequence:
      return self.sequence().flavor() <= Flavor::kRange ? &listMethods() : nullptr;
    default:
      return nullptr;
  }
}

template <typename Table>
std::vector<std::string_view> namesOf(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& entry : table) names.push_back(entry.first);
  return names;
}
}  // namespace

bool hasMethod(const Value& self, std::string_view name) {
  const MethodTable* methods = methodsOf(self);
  if (methods == nullptr || !methods->contains(name)) return false;
  return name != "copy" || !self.isSequence() || self.sequence().flavor() == Flavor::kList;
}

std::optional<Value> callMethod(Runtime& rt, const Value& self, std::string_view name, CallArgs& args) {
  rt.step();
  if (!hasMethod(self, name)) return std::nullopt;
  return methodsOf(self)->at(name)(rt, self, args);
}

MethodNames methodNames() {
  return {namesOf(textMethods()), namesOf(listMethods()), namesOf(dictMethods()), namesOf(loopMethods())};
}

}  // namespace chorus::tmpl
