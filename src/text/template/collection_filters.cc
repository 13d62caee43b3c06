#include <algorithm>

#include "text/template/filter_table.h"
#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

using Flavor = Sequence::Flavor;

Value generator(Runtime& rt, ValueBuffer& items) { return Sequence::make(rt, Flavor::kGenerator, items.finish()); }
Value noItems(Runtime& rt) { return Sequence::make(rt, Flavor::kGenerator, {}); }

// Evaluates the attribute= argument of filters: an integer, or a path such as "a.b.0" of attributes and subscripts.
// fallback, if given, replaces every undefined value on the way.
Value pathOf(Runtime& rt, const Value& item, const Value& path, const Value* fallback = nullptr) {
  const auto orFallback = [&](const Value& value) {
    return fallback != nullptr && value.isUndefined() ? *fallback : value;
  };
  if (path.isInteger()) return orFallback(subscriptOf(rt, item, path));
  if (!path.isString()) raise("attribute must be a string or an integer");
  Value value = item;
  std::string_view rest = path.string();
  rt.charge(rest.size());
  while (true) {
    rt.charge(sizeof(Value));
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
    int64_t number = 0;
    for (const char c : digits ? part : std::string_view()) number = number * 10 + (c - '0');
    value = orFallback(subscriptOf(rt, value, digits ? Value(number) : Value::ofText(part)));
    if (dot == std::string_view::npos) return value;
    rest = rest.substr(dot + 1);
  }
}

Value folded(Runtime& rt, const Value& v, bool case_sensitive) {
  return !case_sensitive && v.isString() ? withCase(rt, v.string(), Case::kLower) : v;
}

// The value by which an item is compared.
Value keyOf(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  return folded(rt, attribute != nullptr && !attribute->isNone() ? pathOf(rt, item, *attribute) : item, case_sensitive);
}

// The key of an item for the sort filter, whose attribute= may name several attributes: a list with one value for each.
// Undefined values are equal in such a list.
Value sortKeyOf(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  ValueBuffer keys(rt);
  if (attribute == nullptr || !attribute->isString()) {
    keys.push(keyOf(rt, item, attribute, case_sensitive));
    return Sequence::make(rt, Flavor::kList, keys.finish());
  }
  std::string_view rest = attribute->string();
  while (true) {
    const size_t comma = rest.find(',');
    const Value part = Value::ofText(rest.substr(0, comma));
    keys.push(keyOf(rt, item, &part, case_sensitive));
    if (comma == std::string_view::npos) return Sequence::make(rt, Flavor::kList, keys.finish());
    rest = rest.substr(comma + 1);
  }
}

using Pairs = Buffer<Dict::Entry>;  // the value by which an item is compared, and the item

Value sortedList(Runtime& rt, Pairs& pairs, bool reverse) {
  sortPairs(rt, pairs.items(), reverse);
  const std::span<Value> items = rt.newValues(pairs.size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = pairs.items()[i].value;
  return Sequence::make(rt, Flavor::kList, items);
}

Value sortFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "sort", {"reverse", "case_sensitive", "attribute"});
  Pairs pairs(rt);
  Items items(rt, v);
  for (Value item; items.next(item);) pairs.push({sortKeyOf(rt, item, a[2], a.truthOr(1, false)), item});
  return sortedList(rt, pairs, a.truthOr(0, false));
}

// Returns pairs of an attribute's value and the items that have it, in the order of the values.
Value groupbyFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = a.given(1) ? a[1] : nullptr;
  const bool case_sensitive = a.truthOr(2, false);
  Pairs pairs(rt);
  Items items(rt, v);
  for (Value item; items.next(item);) pairs.push({folded(rt, pathOf(rt, item, *a[0], fallback), case_sensitive), item});
  sortPairs(rt, pairs.items(), false);
  const std::span<const Dict::Entry> sorted = pairs.items();
  ValueBuffer groups(rt);
  for (size_t begin = 0; begin < sorted.size();) {
    const Value& key = sorted[begin].key;
    size_t end = begin;
    while (end < sorted.size() && equals(rt, sorted[end].key, key)) ++end;
    // A key that is not equal to itself (nan) is a group of its own.
    end = std::max(end, begin + 1);
    const std::span<Value> members = rt.newValues(end - begin);
    for (size_t i = begin; i < end; ++i) members[i - begin] = sorted[i].value;
    const Value shown = case_sensitive ? key : pathOf(rt, members.front(), *a[0], fallback);
    groups.push(Sequence::makeGroup(rt, shown, Sequence::make(rt, Flavor::kList, members)));
    begin = end;
  }
  return Sequence::make(rt, Flavor::kList, groups.finish());
}

// Returns the requested number of lists; if the items can't be divided evenly, the first lists have one item more.
Value sliceFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "slice", {"slices", "fill_with"}, 1);
  const int64_t count = a.integerOr(0, 1);
  if (count < 1 || count > rt.limits().max_range) raise("slice needs a number from 1 to {}", rt.limits().max_range);
  Items items(rt, v);
  ValueBuffer all(rt);
  for (Value item; items.next(item);) all.push(item);
  const size_t slices = static_cast<size_t>(count), each = all.size() / slices, longer = all.size() % slices;
  ValueBuffer out(rt), part(rt);
  for (size_t n = 0, at = 0; n < slices; ++n) {
    const size_t size = each + (n < longer ? 1 : 0);
    part.append(all.items().subspan(at, size));
    if (n >= longer && a.given(1)) part.push(*a[1]);
    out.push(Sequence::make(rt, Flavor::kList, part.finish()));
    at += size;
  }
  return generator(rt, out);
}

Value pairOf(Runtime& rt, const Value& first, const Value& second) {
  const std::span<Value> pair = rt.newValues(2);
  pair[0] = first;
  pair[1] = second;
  return Sequence::make(rt, Flavor::kTuple, pair);
}

Value dictsortFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "dictsort", {"case_sensitive", "by", "reverse"});
  requireDefined(v);
  if (!v.isDict()) raise("dictsort needs a dict, not {}", typeName(v));
  const std::string_view by = a.textOr(1, "key");
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  Pairs pairs(rt);
  for (const auto& [key, value] : v.dict().entries()) {
    pairs.push({folded(rt, by == "key" ? key : value, a.truthOr(0, false)), pairOf(rt, key, value)});
  }
  return sortedList(rt, pairs, a.truthOr(2, false));
}

Value extreme(Runtime& rt, const Value& v, CallArgs& args, bool largest) {
  const BoundArgs a(args, largest ? "max" : "min", {"case_sensitive", "attribute"});
  Items items(rt, v);
  Value best;
  if (!items.next(best)) return Value::undefined(Hint::kText, "No aggregated item, sequence was empty.");
  Value best_key = keyOf(rt, best, a[1], a.truthOr(0, false));
  for (Value item; items.next(item);) {
    const Value key = keyOf(rt, item, a[1], a.truthOr(0, false));
    if (largest ? lessThan(rt, best_key, key) : lessThan(rt, key, best_key)) best = item, best_key = key;
  }
  return best;
}

Value joinFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "join", {"d", "attribute"});
  const Value separator = a[0] != nullptr ? str(rt, *a[0]) : Value::ofText("");
  TextBuffer out(rt);
  bool first = true;
  Items items(rt, v);
  for (Value item; items.next(item);) {
    if (!first) out.append(separator.string());
    out.append(str(rt, a.given(1) ? pathOf(rt, item, *a[1]) : item).string());
    first = false;
  }
  return out.text();
}

Value uniqueFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "unique", {"case_sensitive", "attribute"});
  Dict* const seen = Dict::make(rt);
  ValueBuffer kept(rt);
  Items items(rt, v);
  for (Value item; items.next(item);) {
    const size_t before = seen->size();
    seen->set(rt, keyOf(rt, item, a[1], a.truthOr(0, false)), Value());
    if (seen->size() > before) kept.push(item);
  }
  return generator(rt, kept);
}

Value sumFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "sum", {"attribute", "start"});
  Value total = a[1] != nullptr ? *a[1] : Value(int64_t{0});
  Items items(rt, v);
  for (Value item; items.next(item);) {
    total = binaryOperation(rt, Op::kAdd, total, a.given(0) ? pathOf(rt, item, *a[0]) : item);
  }
  return total;
}

// Implements map('filter', args...) and map(attribute='a.b', default=x).
Value mapFilter(Runtime& rt, const Value& v, CallArgs& args) {
  if (!truthy(v)) return noItems(rt);
  ValueBuffer made(rt);
  if (args.positional.empty()) {
    const BoundArgs a(args, "map", {"attribute", "default"}, 1);
    Items items(rt, v);
    for (Value item; items.next(item);) made.push(pathOf(rt, item, *a[0], a.given(1) ? a[1] : nullptr));
    return generator(rt, made);
  }
  if (!args.positional[0].isString()) raise("map needs the name of a filter");
  const Runtime::Deeper deeper(rt);
  Items items(rt, v);
  for (Value item; items.next(item);) {
    CallArgs rest{.positional = args.positional.subspan(1), .named = args.named};
    made.push(applyFilter(rt, args.positional[0].string(), item, rest));
  }
  return generator(rt, made);
}

// Implements select/reject('test', args...) and selectattr/rejectattr('attribute', 'test', args...).
template <bool kWanted, bool kByAttribute>
Value selectItems(Runtime& rt, const Value& v, CallArgs& args) {
  if (!truthy(v)) return noItems(rt);
  const size_t test_at = kByAttribute ? 1 : 0;
  if (kByAttribute && args.positional.empty()) raise("Missing parameter for attribute name");
  const bool has_test = args.positional.size() > test_at;
  const Runtime::Deeper deeper(rt);
  ValueBuffer kept(rt);
  Items items(rt, v);
  for (Value item; items.next(item);) {
    const Value value = kByAttribute ? pathOf(rt, item, args.positional[0]) : item;
    bool passed = false;
    if (has_test) {
      if (!args.positional[test_at].isString()) raise("a test's name must be a string");
      CallArgs rest{.positional = args.positional.subspan(test_at + 1), .named = {}};
      passed = applyTest(rt, args.positional[test_at].string(), value, rest);
    } else {
      passed = truthy(value);
    }
    if (passed == kWanted) kept.push(item);
  }
  return generator(rt, kept);
}

Value batchFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = a.integerOr(0, 1);
  if (size < 1 || size > rt.limits().max_range) raise("batch needs a size from 1 to {}", rt.limits().max_range);
  ValueBuffer batches(rt), batch(rt);
  Items items(rt, v);
  for (Value item; items.next(item);) {
    if (static_cast<int64_t>(batch.size()) == size) batches.push(Sequence::make(rt, Flavor::kList, batch.finish()));
    batch.push(item);
  }
  if (!batch.empty()) {
    if (a.given(1)) batch.append(static_cast<size_t>(size) - batch.size(), *a[1]);
    batches.push(Sequence::make(rt, Flavor::kList, batch.finish()));
  }
  return generator(rt, batches);
}

Value itemsFilter(Runtime& rt, const Value& v, CallArgs& args) {
  if (v.isUndefined()) return noItems(rt);
  if (!v.isDict()) raise("Can only get item pairs from a mapping.");
  const Value view = *callMethod(rt, v, "items", args);
  return Sequence::make(rt, Flavor::kGenerator, view.sequence().items());
}

// Returns an iterator, or a list if Python can't iterate over the value backwards.
Value reverseFilter(Runtime& rt, const Value& v, CallArgs&) {
  if (v.isString()) return slice(rt, v, Value(), Value(), Value(int64_t{-1}));
  const Value all = sequenceOf(rt, v);
  const size_t size = all.sequence().size();
  const std::span<Value> items = rt.newValues(size);
  for (size_t i = 0; i < size; ++i) items[i] = all.sequence().at(size - 1 - i);
  const bool backwards = v.isDict() || (v.isSequence() && v.sequence().flavor() != Flavor::kGenerator);
  return Sequence::make(rt, backwards ? Flavor::kGenerator : Flavor::kList, items);
}

Value lengthFilter(Runtime& rt, const Value& v, CallArgs&) { return Value(lengthOf(rt, v)); }

Value firstFilter(Runtime& rt, const Value& v, CallArgs&) {
  Items items(rt, v);
  Value item;
  return items.next(item) ? item : Value::undefined(Hint::kText, "No first item, sequence was empty.");
}

Value lastFilter(Runtime& rt, const Value& v, CallArgs&) {
  if (v.isSequence() && v.sequence().flavor() == Flavor::kGenerator) raise("'generator' object is not reversible");
  if (v.isString() && !v.string().empty()) return subscriptOf(rt, v, Value(int64_t{-1}));
  const Value all = sequenceOf(rt, v);
  const size_t size = all.sequence().size();
  return size == 0 ? Value::undefined(Hint::kText, "No last item, sequence was empty.") : all.sequence().at(size - 1);
}

Value listFilter(Runtime& rt, const Value& v, CallArgs&) {
  Items items(rt, v);
  ValueBuffer all(rt);
  all.reserve(v.isString() ? static_cast<size_t>(lengthOf(rt, v)) : items.left());
  for (Value item; items.next(item);) all.push(item);
  return Sequence::make(rt, Flavor::kList, all.finish());
}

Value attrFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "attr", {"name"}, 1);
  requireDefined(v);
  const std::string_view name = a.textOr(0, "");
  if (v.isDict() && !hasMethod(v, name)) return Value::undefined(Hint::kAttribute, name, &v);
  return attributeOf(rt, v, name);
}
}  // namespace

const FilterTable& collectionFilters() {
  static const FilterTable table = {
      {"length", lengthFilter},
      {"count", lengthFilter},
      {"first", firstFilter},
      {"last", lastFilter},
      {"list", listFilter},
      {"items", itemsFilter},
      {"join", joinFilter},
      {"map", mapFilter},
      {"select", selectItems<true, false>},
      {"reject", selectItems<false, false>},
      {"selectattr", selectItems<true, true>},
      {"rejectattr", selectItems<false, true>},
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
      {"attr", attrFilter},
  };
  return table;
}

}  // namespace chorus::tmpl
