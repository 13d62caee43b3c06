// Methods of Python's str.
#include <algorithm>

#include "text/template/method_table.h"
#include "text/template/text_scan.h"
#include "text/template/text_split.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

// The bytes of text[start:end], with Python's rules for negative bounds; not valid if the range lies outside.
struct Window {
  std::string_view text;
  int64_t start;
  bool valid;
};
Window window(Runtime& rt, std::string_view text, const BoundArgs& a, size_t i) {
  if (!a.given(i) && !a.given(i + 1)) return {text, 0, true};
  const auto length = static_cast<int64_t>(countOf(rt, text));
  const auto bound = [&](size_t k, int64_t fallback) {
    const int64_t v = a.given(k) ? a.integerOr(k, fallback) : fallback;
    return v >= 0 ? v : v < -length ? 0 : v + length;
  };
  const int64_t start = bound(i, 0), end = std::min(bound(i + 1, length), length);
  if (start > end) return {{}, start, false};
  const size_t from = byteOffset(rt, text, static_cast<size_t>(start));
  const size_t size = byteOffset(rt, text.substr(from), static_cast<size_t>(end - start));
  return {text.substr(from, size), start, true};
}

// Returns the position in characters; -1 if there is none.
int64_t findIn(Runtime& rt, const Value& self, CallArgs& args, bool last) {
  const BoundArgs a(args, "find", {"sub", "start", "end"}, 1);
  const Window w = window(rt, self.string(), a, 1);
  if (!w.valid) return -1;
  TextFinder finder(rt, a.textOr(0, ""));
  const size_t at = last ? finder.findLast(w.text) : finder.find(w.text);
  if (at == kNotFound) return -1;
  return w.start + static_cast<int64_t>(countOf(rt, w.text.substr(0, at)));
}

int64_t requireFound(int64_t at) {
  if (at < 0) raise("substring not found");
  return at;
}

Value countMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const BoundArgs a(args, "count", {"sub", "start", "end"}, 1);
  const Window w = window(rt, self.string(), a, 1);
  const std::string_view sub = a.textOr(0, "");
  if (!w.valid) return Value(int64_t{0});
  if (sub.empty()) return Value(static_cast<int64_t>(countOf(rt, w.text)) + 1);
  const TextFinder finder(rt, sub);
  int64_t n = 0;
  for (size_t at = 0; (at = finder.find(w.text, at)) != kNotFound; at += sub.size()) ++n;
  return Value(n);
}

Value affixTest(Runtime& rt, const Value& self, CallArgs& args, bool prefix) {
  const BoundArgs a(args, prefix ? "startswith" : "endswith", {"affix", "start", "end"}, 1);
  const Window w = window(rt, self.string(), a, 1);
  const auto test = [&](const Value& affix) {
    rt.charge(sizeof(Value));
    requireDefined(affix);
    if (!affix.isString())
      raise("{} first arg must be str or a tuple of str, not {}", prefix ? "startswith" : "endswith", typeName(affix));
    if (!w.valid || affix.string().size() > w.text.size()) return false;
    rt.charge(affix.string().size());
    return prefix ? w.text.starts_with(affix.string()) : w.text.ends_with(affix.string());
  };
  if (!a[0]->isSequence() || a[0]->sequence().flavor() != Sequence::Flavor::kTuple) return Value(test(*a[0]));
  for (const Value& affix : a[0]->sequence().items()) {
    if (test(affix)) return Value(true);
  }
  return Value(false);
}

Value replaceMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const BoundArgs a(args, "replace", {"old", "new", "count"}, 2);
  const std::string_view old = a.textOr(0, ""), fresh = a.textOr(1, ""), text = self.string();
  int64_t count = a.integerOr(2, -1);
  TextBuffer out(rt);
  size_t at = 0;
  if (old.empty()) {
    while (count != 0) {
      rt.charge(4);
      out.append(fresh);
      if (count > 0) --count;
      if (at >= text.size()) break;
      const auto n = static_cast<size_t>(utf8Length(text[at]));
      out.append(text.substr(at, n));
      at += n;
    }
  } else {
    const TextFinder finder(rt, old);
    for (size_t next; count != 0 && (next = finder.find(text, at)) != kNotFound; at = next + old.size()) {
      out.append(text.substr(at, next - at));
      out.append(fresh);
      if (count > 0) --count;
    }
    if (at == 0) return self;
  }
  if (at < text.size()) out.append(text.substr(at));
  return out.text();
}

Value joinMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const BoundArgs a(args, "join", {"iterable"}, 1);
  TextBuffer out(rt);
  int64_t i = 0;
  Items items(rt, *a[0]);
  for (Value item; items.next(item);) {
    if (!item.isString()) raise("sequence item {}: expected str instance, {} found", i, typeName(item));
    if (i++ > 0) out.append(self.string());
    out.append(item.string());
  }
  return out.text();
}

Value padMethod(Runtime& rt, const Value& self, CallArgs& args, int side) {
  const BoundArgs a(args, "just", {"width", "fillchar"}, 1);
  const std::string_view fill = a.textOr(1, " ");
  if (fill.empty() || static_cast<size_t>(utf8Length(fill[0])) != fill.size())
    raise("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(countOf(rt, self.string()));
  const int64_t width = a.integerOr(0, 0), total = width > length ? width - length : 0;
  if (total == 0) return self;
  // If the padding is odd, Python's center adds the extra character on the left when the width is odd too.
  const int64_t left = side < 0 ? 0 : side > 0 ? total : total / 2 + (total & width & 1);
  TextBuffer out(rt);
  const auto pad = [&](int64_t count) {
    if (fill.size() == 1) return out.append(static_cast<size_t>(count), fill[0]);
    for (int64_t i = 0; i < count; ++i) out.append(fill);
  };
  out.reserve(self.string().size() + static_cast<size_t>(total));
  pad(left);
  out.append(self.string());
  pad(total - left);
  return out.text();
}

Value zfillMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const BoundArgs a(args, "zfill", {"width"}, 1);
  const std::string_view text = self.string();
  const auto length = static_cast<int64_t>(countOf(rt, text));
  const int64_t width = a.integerOr(0, 0);
  if (width <= length) return self;
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  TextBuffer out(rt);
  out.append(text.substr(0, sign));
  out.append(static_cast<size_t>(width - length), '0');
  out.append(text.substr(sign));
  return out.text();
}

Value partition(Runtime& rt, const Value& self, CallArgs& args, bool last) {
  const BoundArgs a(args, "partition", {"sep"}, 1);
  const std::string_view separator = a.textOr(0, ""), text = self.string();
  if (separator.empty()) raise("empty separator");
  TextFinder finder(rt, separator);
  const size_t at = last ? finder.findLast(text) : finder.find(text);
  const std::span<Value> parts = rt.newValues(3);
  parts[0] = parts[1] = parts[2] = Value::ofText("");
  if (at == kNotFound) {
    parts[last ? 2 : 0] = self;
  } else {
    parts[0] = Value::ofText(text.substr(0, at));
    parts[1] = Value::ofText(separator);
    parts[2] = Value::ofText(text.substr(at + separator.size()));
  }
  return Sequence::make(rt, Sequence::Flavor::kTuple, parts);
}

// True if the text is not empty and the test holds for all of its characters.
template <bool (*kTest)(uint32_t)>
Value allCharacters(Runtime& rt, const Value& self, CallArgs&) {
  for (Characters c(rt, self.string()); c.next();) {
    if (!kTest(c.code())) return Value(false);
  }
  return Value(!self.string().empty());
}
bool isLetterOrNumber(uint32_t code) { return isLetter(code) || isNumber(code); }
bool isAscii(uint32_t code) { return code < 0x80; }

Value expandtabsMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const int64_t size = std::clamp<int64_t>(BoundArgs(args, "expandtabs", {"tabsize"}).integerOr(0, 8), 0, 10000);
  TextBuffer out(rt);
  int64_t column = 0;
  for (Characters c(rt, self.string()); c.next();) {
    if (c.code() == '\t') {
      const int64_t missing = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(missing), ' ');
      column += missing;
    } else {
      out.append(c.bytes());
      column = c.code() == '\n' || c.code() == '\r' ? 0 : column + 1;
    }
  }
  return out.text();
}

Value swapcaseMethod(Runtime& rt, const Value& self, CallArgs&) {
  TextBuffer out(rt);
  for (Characters c(rt, self.string()); c.next();) {
    const size_t before = out.size();
    appendCase(out, Case::kUpper, c.bytes());
    if (out.view().substr(before) != c.bytes()) continue;
    out.truncate(before);
    appendCase(out, Case::kLower, c.bytes());
  }
  return out.text();
}

Value istitleMethod(Runtime& rt, const Value& self, CallArgs&) {
  bool any = false, in_word = false;
  TextBuffer other(rt);
  const auto changes = [&](Case to, std::string_view character) {
    other.clear();
    appendCase(other, to, character);
    return other.view() != character;
  };
  for (Characters c(rt, self.string()); c.next();) {
    const bool lower = changes(Case::kUpper, c.bytes()), upper = changes(Case::kLower, c.bytes());
    if (upper ? in_word : lower && !in_word) return Value(false);
    in_word = lower || upper;
    any = any || in_word;
  }
  return Value(any);
}

Value formatMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const std::string_view format = self.string();
  TextBuffer out(rt);
  size_t automatic = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if ((c != '{' && c != '}') || (i + 1 < format.size() && format[i + 1] == c)) {
      out.push(c);
      i += c == '{' || c == '}' ? 1 : 0;
      continue;
    }
    const size_t close = c == '{' ? format.find('}', i) : kNotFound;
    if (close == kNotFound) raise("Single '{}' encountered in format string", c);
    const std::string_view field = format.substr(i + 1, close - i - 1);
    rt.charge(4 * field.size());
    i = close;
    const Value* value = nullptr;
    const bool digits = field.find_first_not_of("0123456789") == kNotFound;
    if (digits && field.size() < 4) {
      size_t index = field.empty() ? automatic++ : 0;
      for (const char digit : field) index = index * 10 + static_cast<size_t>(digit - '0');
      if (index >= args.positional.size()) raise("Replacement index {} out of range for positional args tuple", index);
      value = &args.positional[index];
    } else {
      if (field.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != kNotFound) {
        raise("the format field '{}' is not supported; only names and numbers are", printable(field));
      }
      for (const auto& [name, named] : args.named) {
        rt.charge(sizeof(NamedValue));
        if (name == field) value = &named;
      }
      if (value == nullptr) raise("the format uses the argument '{}', which isn't given", printable(field));
    }
    out.append(str(rt, *value).string());
  }
  return out.text();
}

template <bool kPrefix>
Value removeAffix(Runtime& rt, const Value& self, CallArgs& args) {
  const std::string_view affix = BoundArgs(args, kPrefix ? "removeprefix" : "removesuffix", {"affix"}, 1).textOr(0, "");
  const std::string_view text = self.string();
  if (affix.size() > text.size()) return self;
  rt.charge(affix.size());
  if (kPrefix) return text.starts_with(affix) ? Value::ofText(text.substr(affix.size())) : self;
  return text.ends_with(affix) ? Value::ofText(text.substr(0, text.size() - affix.size())) : self;
}

template <bool kLeft, bool kRight>
Value stripMethod(Runtime& rt, const Value& self, CallArgs& args) {
  return Value::ofText(strippedBy(rt, self.string(), BoundArgs(args, "strip", {"chars"})[0], kLeft, kRight));
}

Value lowerMethod(Runtime& rt, const Value& s, CallArgs&) { return withCase(rt, s.string(), Case::kLower); }

}  // namespace

const MethodTable& textMethods() {
  static const MethodTable table = {
      {"upper", [](Runtime& rt, const Value& s, CallArgs&) { return withCase(rt, s.string(), Case::kUpper); }},
      {"lower", lowerMethod},
      {"casefold", lowerMethod},
      {"title", [](Runtime& rt, const Value& s, CallArgs&) { return titled(rt, s.string()); }},
      {"capitalize", [](Runtime& rt, const Value& s, CallArgs&) { return capitalized(rt, s.string()); }},
      {"swapcase", swapcaseMethod},
      {"strip", stripMethod<true, true>},
      {"lstrip", stripMethod<true, false>},
      {"rstrip", stripMethod<false, true>},
      {"split", [](Runtime& rt, const Value& s, CallArgs& args) { return splitText(rt, s.string(), args, false); }},
      {"rsplit", [](Runtime& rt, const Value& s, CallArgs& args) { return splitText(rt, s.string(), args, true); }},
      {"splitlines", [](Runtime& rt, const Value& s, CallArgs& args) { return splitLines(rt, s.string(), args); }},
      {"startswith", [](Runtime& rt, const Value& s, CallArgs& args) { return affixTest(rt, s, args, true); }},
      {"endswith", [](Runtime& rt, const Value& s, CallArgs& args) { return affixTest(rt, s, args, false); }},
      {"replace", replaceMethod},
      {"join", joinMethod},
      {"format", formatMethod},
      {"find", [](Runtime& rt, const Value& s, CallArgs& args) { return Value(findIn(rt, s, args, false)); }},
      {"rfind", [](Runtime& rt, const Value& s, CallArgs& args) { return Value(findIn(rt, s, args, true)); }},
      {"index",
       [](Runtime& rt, const Value& s, CallArgs& args) { return Value(requireFound(findIn(rt, s, args, false))); }},
      {"rindex",
       [](Runtime& rt, const Value& s, CallArgs& args) { return Value(requireFound(findIn(rt, s, args, true))); }},
      {"count", countMethod},
      {"zfill", zfillMethod},
      {"ljust", [](Runtime& rt, const Value& s, CallArgs& args) { return padMethod(rt, s, args, -1); }},
      {"rjust", [](Runtime& rt, const Value& s, CallArgs& args) { return padMethod(rt, s, args, 1); }},
      {"center", [](Runtime& rt, const Value& s, CallArgs& args) { return padMethod(rt, s, args, 0); }},
      {"partition", [](Runtime& rt, const Value& s, CallArgs& args) { return partition(rt, s, args, false); }},
      {"rpartition", [](Runtime& rt, const Value& s, CallArgs& args) { return partition(rt, s, args, true); }},
      {"removeprefix", removeAffix<true>},
      {"removesuffix", removeAffix<false>},
      {"expandtabs", expandtabsMethod},
      {"istitle", istitleMethod},
      {"isascii",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         return Value(s.string().empty() || allCharacters<isAscii>(rt, s, args).boolean());
       }},
      {"isspace", allCharacters<isPythonSpace>},
      {"isalpha", allCharacters<isLetter>},
      {"isdigit", allCharacters<isDecimalDigit>},
      {"isdecimal", allCharacters<isDecimalDigit>},
      {"isnumeric", allCharacters<isNumber>},
      {"isalnum", allCharacters<isLetterOrNumber>},
      {"isupper",
       [](Runtime& rt, const Value& s, CallArgs&) { return Value(hasOnlyCase(rt, s.string(), Case::kUpper)); }},
      {"islower",
       [](Runtime& rt, const Value& s, CallArgs&) { return Value(hasOnlyCase(rt, s.string(), Case::kLower)); }},
  };
  return table;
}

}  // namespace chorus::tmpl
