// Methods of Python's built-in collections that don't change them, and of loops.
#include <algorithm>

#include "text/template/method_table.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

const MethodTable& dictMethods() {
  static const MethodTable table = {
      {"items",
       [](Runtime& rt, const Value& d, CallArgs&) {
         std::vector<Value> items;
         rt.step(lengthOf(d));
         rt.charge(d.dict()->entries.size() * 3 * sizeof(Value));
         for (const auto& [key, value] : d.dict()->entries) items.push_back(makeTuple({key, value}));
         return makeSequence(Sequence::Flavor::kItems, std::move(items));
       }},
      {"keys",
       [](Runtime& rt, const Value& d, CallArgs&) { return makeSequence(Sequence::Flavor::kKeys, itemsOf(rt, d)); }},
      {"values",
       [](Runtime& rt, const Value& d, CallArgs&) {
         std::vector<Value> items;
         rt.step(lengthOf(d));
         rt.charge(d.dict()->entries.size() * sizeof(Value));
         for (const auto& entry : d.dict()->entries) items.push_back(entry.second);
         return makeSequence(Sequence::Flavor::kValues, std::move(items));
       }},
      {"get",
       [](Runtime&, const Value& d, CallArgs& args) {
         const BoundArgs a(args, "get", {"key", "default"}, 1);
         if (const Value* value = d.dict()->find(*a[0])) return *value;
         return a[1] != nullptr ? *a[1] : Value();
       }},
      {"copy",
       [](Runtime& rt, const Value& d, CallArgs&) {
         rt.charge(d.dict()->entries.size() * 2 * sizeof(Value));
         return Value(std::make_shared<Dict>(*d.dict()));
       }},
  };
  return table;
}

const MethodTable& listMethods() {
  static const MethodTable table = {
      {"index",
       [](Runtime& rt, const Value& l, CallArgs& args) {
         const BoundArgs a(args, "index", {"value"}, 1);
         const auto& items = l.sequence().items;
         rt.step(static_cast<int64_t>(items.size()));
         const auto it = std::find_if(items.begin(), items.end(), [&](const Value& v) { return equals(v, *a[0]); });
         if (it == items.end()) raise("{} is not in list", printable(repr(*a[0])));
         return Value(static_cast<int64_t>(it - items.begin()));
       }},
      {"count",
       [](Runtime& rt, const Value& l, CallArgs& args) {
         const BoundArgs a(args, "count", {"value"}, 1);
         const auto& items = l.sequence().items;
         rt.step(static_cast<int64_t>(items.size()));
         return Value(static_cast<int64_t>(
             std::count_if(items.begin(), items.end(), [&](const Value& v) { return equals(v, *a[0]); })));
       }},
      {"copy", [](Runtime& rt, const Value& l, CallArgs&) { return makeList(itemsOf(rt, l)); }},
  };
  return table;
}

// A loop that kept itself would never be freed.
bool holdsALoop(const Value& v) {
  switch (v.kind()) {
    case Kind::kLoop:
    case Kind::kFunction:
    case Kind::kNamespace:
      return true;
    case Kind::kSequence:
      return std::any_of(v.sequence().items.begin(), v.sequence().items.end(), holdsALoop);
    case Kind::kDict:
      return std::any_of(v.dict()->entries.begin(), v.dict()->entries.end(),
                         [](const auto& entry) { return holdsALoop(entry.second); });
    default:
      return false;
  }
}

const MethodTable& loopMethods() {
  static const MethodTable table = {
      {"cycle",
       [](Runtime&, const Value& self, CallArgs& args) {
         if (args.positional.empty()) raise("no items for cycling given");
         return args.positional[self.loop()->index % args.positional.size()];
       }},
      {"changed",
       [](Runtime& rt, const Value& self, CallArgs& args) {
         LoopState& loop = *self.loop();
         for (const Value& v : args.positional) {
           rt.step(v.weight());
           if (holdsALoop(v)) raise("loop.changed of a loop is not supported");
         }
         const bool same = loop.has_changed && std::equal(loop.changed.begin(), loop.changed.end(),
                                                          args.positional.begin(), args.positional.end(), equals);
         loop.has_changed = true;
         loop.changed = args.positional;
         return Value(!same);
       }},
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
      return self.sequence().flavor <= Sequence::Flavor::kRange ? &listMethods() : nullptr;
    default:
      return nullptr;
  }
}
}  // namespace

bool hasMethod(const Value& self, std::string_view name) {
  const MethodTable* methods = methodsOf(self);
  if (methods == nullptr || !methods->contains(name)) return false;
  return name != "copy" || !self.isSequence() || self.sequence().flavor == Sequence::Flavor::kList;
}

std::optional<Value> callMethod(Runtime& rt, const Value& self, std::string_view name, CallArgs& args) {
  if (!hasMethod(self, name)) return std::nullopt;
  return methodsOf(self)->at(name)(rt, self, args);
}

}  // namespace chorus::tmpl
