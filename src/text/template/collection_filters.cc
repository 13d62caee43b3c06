#include <algorithm>
#include <set>

#include "text/template/filter_table.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

// "a.b.0" or 0: attributes and subscripts one after the other, as the attribute= arguments of filters mean it.
// fallback, where there is one, takes the place of every value on the way that is not there.
Value pathOf(Runtime& rt, const Value& item, const Value& path, const Value* fallback = nullptr) {
  const auto orFallback = [&](Value value) { return fallback != nullptr && value.isUndefined() ? *fallback : value; };
  if (path.isInteger()) return orFallback(subscriptOf(rt, item, path));
  if (!path.isString()) raise("attribute must be a string or an integer");
  Value value = item;
  std::string_view rest = path.string();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool digits = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = orFallback(subscriptOf(rt, value, digits ? Value(static_cast<int64_t>(std::stoll(part))) : Value(part)));
    if (dot == std::string_view::npos) return value;
    rest = rest.substr(dot + 1);
  }
}

Value folded(const Value& v, bool case_sensitive) {
  return !case_sensitive && v.isString() ? Value(toLower(v.string())) : v;
}

// The value that an item is compared by.
Value keyOf(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  return folded(attribute != nullptr && !attribute->isNone() ? pathOf(rt, item, *attribute) : item, case_sensitive);
}

// The same for sort, whose attribute= may name several: a list, in which values that are absent are equal.
Value sortKeyOf(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  std::vector<Value> keys;
  if (attribute == nullptr || !attribute->isString()) {
    keys.push_back(keyOf(rt, item, attribute, case_sensitive));
    return makeList(std::move(keys));
  }
  std::string_view rest = attribute->string();
  while (true) {
    const size_t comma = rest.find(',');
    const Value part{std::string(rest.substr(0, comma))};
    keys.push_back(keyOf(rt, item, &part, case_sensitive));
    if (comma == std::string_view::npos) return makeList(std::move(keys));
    rest = rest.substr(comma + 1);
  }
}

// Sorting can throw (values that have no order), which std::sort must not see; a merge sort of our own can.
void mergeSort(Runtime& rt, std::vector<std::pair<Value, Value>>& items, bool reverse) {
  std::vector<std::pair<Value, Value>> other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    rt.step(static_cast<int64_t>(items.size()));
    for (size_t low = 0; low < items.size(); low += 2 * width) {
      const size_t middle = std::min(low + width, items.size()), high = std::min(low + 2 * width, items.size());
      size_t a = low, b = middle;
      for (size_t out = low; out < high; ++out) {
        const bool right = a == middle || (b < high && (reverse ? lessThan(items[a].first, items[b].first)
                                                                : lessThan(items[b].first, items[a].first)));
        other[out] = std::move(items[right ? b++ : a++]);
      }
    }
    items.swap(other);
  }
}

Value sortFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "sort", {"reverse", "case_sensitive", "attribute"});
  requireDefined(v);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : itemsOf(rt, v)) {
    Value key = sortKeyOf(rt, item, a[2], a.truthOr(1, false));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  mergeSort(rt, keyed, a.truthOr(0, false));
  std::vector<Value> items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return makeList(std::move(items));
}

// Pairs of a value of the attribute and the items that have it, in the order of the values.
Value groupbyFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  requireDefined(v);
  const Value* fallback = a[1] != nullptr && !a[1]->isNone() ? a[1] : nullptr;
  const bool case_sensitive = a.truthOr(2, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : itemsOf(rt, v)) {
    Value key = folded(pathOf(rt, item, *a[0], fallback), case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  mergeSort(rt, keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    const Value key = keyed[begin].first;
    size_t end = begin;
    for (; end < keyed.size() && equals(keyed[end].first, key); ++end) members.push_back(std::move(keyed[end].second));
    const Value shown = case_sensitive ? key : pathOf(rt, members.front(), *a[0], fallback);
    Value group = makeTuple({shown, makeList(std::move(members))});
    group.sequence().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return makeList(std::move(groups));
}

// As many lists as asked for, the first ones longer by one where the items don't divide.
Value sliceFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "slice", {"slices", "fill_with"}, 1);
  const int64_t count = a.integerOr(0, 1);
  if (count < 1 || count > rt.limits().max_range) raise("slice needs a number from 1 to {}", rt.limits().max_range);
  requireDefined(v);
  const std::vector<Value> items = itemsOf(rt, v);
  const size_t slices = static_cast<size_t>(count), each = items.size() / slices, longer = items.size() % slices;
  rt.step(count);
  rt.charge(slices * sizeof(Value));
  std::vector<Value> out;
  for (size_t n = 0, at = 0; n < slices; ++n) {
    const size_t size = each + (n < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                            items.begin() + static_cast<std::ptrdiff_t>(at + size));
    if (n >= longer && a[1] != nullptr && !a[1]->isNone()) part.push_back(*a[1]);
    out.push_back(makeList(std::move(part)));
    at += size;
  }
  return makeSequence(Sequence::Flavor::kGenerator, std::move(out));
}

Value dictsortFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "dictsort", {"case_sensitive", "by", "reverse"});
  requireDefined(v);
  if (!v.isDict()) raise("dictsort needs a dict, not {}", typeName(v));
  const std::string by = a.textOr(1, "key");
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  std::vector<std::pair<Value, Value>> keyed;
  rt.step(lengthOf(v));
  for (const auto& [key, value] : v.dict()->entries) {
    keyed.emplace_back(folded(by == "key" ? key : value, a.truthOr(0, false)), makeTuple({key, value}));
  }
  mergeSort(rt, keyed, a.truthOr(2, false));
  std::vector<Value> items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return makeList(std::move(items));
}

Value extreme(Runtime& rt, const Value& v, CallArgs& args, bool largest) {
  const BoundArgs a(args, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const std::vector<Value> items = itemsOf(rt, v);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = keyOf(rt, items[0], a[1], a.truthOr(0, false));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = keyOf(rt, items[i], a[1], a.truthOr(0, false));
    if (largest ? lessThan(best_key, key) : lessThan(key, best_key)) best = i, best_key = std::move(key);
  }
  return items[best];
}

Value joinFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "join", {"d", "attribute"});
  const std::string separator = a[0] != nullptr ? str(*a[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : itemsOf(rt, v)) {
    const Value value = a[1] != nullptr && !a[1]->isNone() ? pathOf(rt, item, *a[1]) : item;
    rt.charge(static_cast<size_t>(value.weight()));
    const std::string text = str(value);
    rt.charge(text.size() + separator.size());
    if (!first) out += separator;
    out += text;
    first = false;
  }
  return Value(std::move(out));
}

Value uniqueFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "unique", {"case_sensitive", "attribute"});
  std::set<std::string> seen;
  std::vector<Value> items;
  for (Value& item : itemsOf(rt, v)) {
    if (seen.insert(rt.charged(hashKey(keyOf(rt, item, a[1], a.truthOr(0, false))))).second)
      items.push_back(std::move(item));
  }
  return makeSequence(Sequence::Flavor::kGenerator, std::move(items));
}

Value sumFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "sum", {"attribute", "start"});
  Value total = a[1] != nullptr ? *a[1] : Value(int64_t{0});
  for (const Value& item : itemsOf(rt, v)) {
    const Value value = a[0] != nullptr && !a[0]->isNone() ? pathOf(rt, item, *a[0]) : item;
    total = binaryOperation(rt, "+", total, value);
  }
  return total;
}

// map('filter', args...) or map(attribute='a.b', default=x).
Value mapFilter(Runtime& rt, const Value& v, CallArgs& args) {
  std::vector<Value> items;
  if (!truthy(v)) return makeSequence(Sequence::Flavor::kGenerator, {});
  if (args.positional.empty()) {
    const BoundArgs a(args, "map", {"attribute", "default"}, 1);
    for (const Value& item : itemsOf(rt, v)) {
      items.push_back(pathOf(rt, item, *a[0], a[1] != nullptr && !a[1]->isNone() ? a[1] : nullptr));
    }
  } else {
    if (!args.positional[0].isString()) raise("map needs the name of a filter");
    const std::string name = args.positional[0].string();
    for (const Value& item : itemsOf(rt, v)) {
      CallArgs rest;
      rest.positional.assign(args.positional.begin() + 1, args.positional.end());
      rest.named = args.named;
      const Runtime::Deeper deeper(rt);
      items.push_back(applyFilter(rt, name, item, rest));
    }
  }
  return makeSequence(Sequence::Flavor::kGenerator, std::move(items));
}

// select/reject('test', args...), selectattr/rejectattr('attribute', 'test', args...).
Value selectItems(Runtime& rt, const Value& v, CallArgs& args, bool wanted, bool by_attribute) {
  if (!truthy(v)) return makeSequence(Sequence::Flavor::kGenerator, {});
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && args.positional.empty()) raise("Missing parameter for attribute name");
  std::vector<Value> items;
  for (Value& item : itemsOf(rt, v)) {
    const Value value = by_attribute ? pathOf(rt, item, args.positional[0]) : item;
    bool passed = false;
    if (args.positional.size() <= test_at) {
      passed = truthy(value);
    } else {
      if (!args.positional[test_at].isString()) raise("a test's name must be a string");
      CallArgs rest;
      rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(test_at) + 1, args.positional.end());
      passed = applyTest(rt, args.positional[test_at].string(), value, rest);
    }
    if (passed == wanted) items.push_back(std::move(item));
  }
  return makeSequence(Sequence::Flavor::kGenerator, std::move(items));
}

Value batchFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = a.integerOr(0, 1);
  if (size < 1 || size > rt.limits().max_range) raise("batch needs a size from 1 to {}", rt.limits().max_range);
  std::vector<Value> batches, batch;
  for (Value& item : itemsOf(rt, v)) {
    if (static_cast<int64_t>(batch.size()) == size) batches.push_back(makeList(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (a[1] != nullptr && !a[1]->isNone()) {
      rt.charge(static_cast<size_t>(size) * sizeof(Value));
      batch.resize(static_cast<size_t>(size), *a[1]);
    }
    batches.push_back(makeList(std::move(batch)));
  }
  return makeSequence(Sequence::Flavor::kGenerator, std::move(batches));
}

Value itemsFilter(Runtime& rt, const Value& v, CallArgs& args) {
  if (v.isUndefined()) return makeSequence(Sequence::Flavor::kGenerator, {});
  if (!v.isDict()) raise("Can only get item pairs from a mapping.");
  const Value view = *callMethod(rt, v, "items", args);
  return makeSequence(Sequence::Flavor::kGenerator, view.sequence().items);
}

Value reverseFilter(Runtime& rt, const Value& v, CallArgs&) {
  if (v.isString()) {
    std::string out;
    auto all = characters(v.string());
    rt.charge(v.string().size() * 32);
    for (auto it = all.rbegin(); it != all.rend(); ++it) out += *it;
    return Value(std::move(out));
  }
  requireDefined(v);
  std::vector<Value> items = itemsOf(rt, v);
  std::reverse(items.begin(), items.end());
  return makeSequence(Sequence::Flavor::kGenerator, std::move(items));
}
}  // namespace

const FilterTable& collectionFilters() {
  static const FilterTable table = {
      {"length", [](Runtime&, const Value& v, CallArgs&) { return Value(lengthOf(v)); }},
      {"count", [](Runtime&, const Value& v, CallArgs&) { return Value(lengthOf(v)); }},
      {"first",
       [](Runtime& rt, const Value& v, CallArgs&) {
         const auto items = itemsOf(rt, v);
         return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
       }},
      {"last",
       [](Runtime& rt, const Value& v, CallArgs&) {
         if (v.isSequence() && v.sequence().flavor == Sequence::Flavor::kGenerator)
           raise("'generator' object is not reversible");
         const auto items = itemsOf(rt, v);
         return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
       }},
      {"list", [](Runtime& rt, const Value& v, CallArgs&) { return makeList(itemsOf(rt, v)); }},
      {"items", itemsFilter},
      {"join", joinFilter},
      {"map", mapFilter},
      {"select", [](Runtime& rt, const Value& v, CallArgs& args) { return selectItems(rt, v, args, true, false); }},
      {"reject", [](Runtime& rt, const Value& v, CallArgs& args) { return selectItems(rt, v, args, false, false); }},
      {"selectattr", [](Runtime& rt, const Value& v, CallArgs& args) { return selectItems(rt, v, args, true, true); }},
      {"rejectattr", [](Runtime& rt, const Value& v, CallArgs& args) { return selectItems(rt, v, args, false, true); }},
      {"sort", sortFilter},
      {"dictsort", dictsortFilter},
      {"unique", uniqueFilter},
      {"reverse", reverseFilter},
      {"sum", sumFilter},
      {"min", [](Runtime& rt, const Value& v, CallArgs& args) { return extreme(rt, v, args, false); }},
      {"max", [](Runtime& rt, const Value& v, CallArgs& args) { return extreme(rt, v, args, true); }},
      {"batch", batchFilter},
      {"slice", sliceFilter},
      {"groupby", groupbyFilter},
      {"attr",
       [](Runtime& rt, const Value& v, CallArgs& args) {
         const BoundArgs a(args, "attr", {"name"}, 1);
         requireDefined(v);
         const std::string name = a.textOr(0, "");
         if (v.isDict() && !hasMethod(v, name))
           return Value::undefined(fmt::format("'dict object' has no attribute '{}'", printable(name)));
         return attributeOf(rt, v, name);
       }},
  };
  return table;
}

}  // namespace chorus::tmpl
