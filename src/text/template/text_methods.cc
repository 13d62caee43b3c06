// Methods of Python's str.
#include <algorithm>

#include "text/template/method_table.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

Value textList(Runtime& rt, std::vector<std::string> parts) {
  rt.charge(parts.size() * sizeof(Value));
  std::vector<Value> items;
  for (auto& part : parts) items.emplace_back(std::move(part));
  return makeList(std::move(items));
}

struct TextSpan {
  size_t begin, end;
};

bool isPythonSpace(uint32_t code) { return isUnicodeSpace(code) || (code >= 0x1C && code <= 0x1F); }

// At white space, runs of which separate once; limit < 0 is no limit.
std::vector<std::string> splitAtSpace(std::string_view text, int64_t limit, bool from_right) {
  std::vector<TextSpan> words;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decodeUtf8(text.substr(i));
    const size_t end = i + static_cast<size_t>(step.length);
    if (!isPythonSpace(step.code)) {
      if (!words.empty() && words.back().end == i)
        words.back().end = end;
      else
        words.push_back({i, end});
    }
    i = end;
  }
  // Beyond the limit, what remains stays one part, with the white space inside it and at its far end.
  const size_t keep = limit < 0 ? words.size() : std::min(words.size(), static_cast<size_t>(limit));
  const size_t rest = words.size() - keep;
  std::vector<std::string> parts;
  if (from_right && rest > 0) parts.emplace_back(text.substr(0, words[rest - 1].end));
  for (size_t k = from_right ? rest : 0; k < (from_right ? words.size() : keep); ++k) {
    parts.emplace_back(text.substr(words[k].begin, words[k].end - words[k].begin));
  }
  if (!from_right && rest > 0) parts.emplace_back(text.substr(words[keep].begin));
  return parts;
}

std::vector<std::string> splitAt(std::string_view text, const std::string& separator, int64_t limit, bool from_right) {
  if (separator.empty()) raise("empty separator");
  std::vector<std::string> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.emplace_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.emplace_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value splitMethod(Runtime& rt, const Value& self, CallArgs& args, bool from_right) {
  const BoundArgs a(args, "split", {"sep", "maxsplit"});
  const int64_t limit = a.integerOr(1, -1);
  const std::string& text = self.string();
  rt.charge(text.size() * 2);
  rt.step(static_cast<int64_t>(text.size() / 16));
  if (a[0] != nullptr && !a[0]->isNone()) return textList(rt, splitAt(text, a.textOr(0, ""), limit, from_right));
  return textList(rt, splitAtSpace(text, limit, from_right));
}

std::vector<std::string> splitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decodeUtf8(text.substr(i));
    size_t end = i + static_cast<size_t>(step.length);
    const uint32_t c = step.code;
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (breaks) {
      const size_t line_end = i;
      if (c == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.emplace_back(text.substr(begin, (keep_ends ? end : line_end) - begin));
      begin = end;
    }
    i = end;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

size_t byteOffset(const std::string& text, int64_t character) {
  size_t at = 0;
  for (int64_t i = 0; i < character && at < text.size(); ++i) at += static_cast<size_t>(utf8Length(text[at]));
  return at;
}

// The bytes of text[start:end] with Python's rules for negative bounds; null when the range lies outside.
struct Window {
  std::string_view text;
  int64_t start;
  bool valid;
};
Window window(const std::string& text, const BoundArgs& a, size_t i) {
  const auto length = static_cast<int64_t>(countCharacters(text));
  const auto bound = [&](size_t k, int64_t fallback) {
    int64_t v = a[k] == nullptr || a[k]->isNone() ? fallback : a.integerOr(k, fallback);
    if (v < 0) v = std::max<int64_t>(v < -length ? 0 : v + length, 0);
    return v;
  };
  const int64_t start = bound(i, 0), end = std::min(bound(i + 1, length), length);
  if (start > end) return {{}, start, false};
  const size_t from = byteOffset(text, start), to = byteOffset(text, end);
  return {std::string_view(text).substr(from, to - from), start, true};
}

int64_t findIn(Runtime& rt, const Value& self, CallArgs& args, bool last) {
  const BoundArgs a(args, "find", {"sub", "start", "end"}, 1);
  rt.step(static_cast<int64_t>(self.string().size() / 16));
  const Window w = window(self.string(), a, 1);
  if (!w.valid) return -1;
  const std::string sub = a.textOr(0, "");
  const size_t at = last ? w.text.rfind(sub) : w.text.find(sub);
  if (at == std::string_view::npos) return -1;
  return w.start + static_cast<int64_t>(countCharacters(w.text.substr(0, at)));
}

Value affixTest(Runtime& rt, const Value& self, CallArgs& args, bool prefix) {
  const BoundArgs a(args, prefix ? "startswith" : "endswith", {"affix", "start", "end"}, 1);
  rt.step();
  const Window w = window(self.string(), a, 1);
  const auto test = [&](const Value& affix) {
    requireDefined(affix);
    if (!affix.isString())
      raise("{} first arg must be str or a tuple of str, not {}", prefix ? "startswith" : "endswith", typeName(affix));
    return w.valid && (prefix ? w.text.starts_with(affix.string()) : w.text.ends_with(affix.string()));
  };
  if (a[0]->isSequence() && a[0]->sequence().flavor == Sequence::Flavor::kTuple) {
    const auto& items = a[0]->sequence().items;
    return Value(std::any_of(items.begin(), items.end(), test));
  }
  return Value(test(*a[0]));
}

Value replaceMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const BoundArgs a(args, "replace", {"old", "new", "count"}, 2);
  const std::string old = a.textOr(0, ""), fresh = a.textOr(1, "");
  int64_t count = a.integerOr(2, -1);
  const std::string& text = self.string();
  rt.step(static_cast<int64_t>(text.size() / 16));
  std::string out;
  size_t at = 0;
  const auto grow = [&](std::string_view part) { rt.charge(part.size()), out += part; };
  if (old.empty()) {
    while (count != 0) {
      grow(fresh);
      if (count > 0) --count;
      if (at >= text.size()) break;
      const auto n = static_cast<size_t>(utf8Length(text[at]));
      grow(std::string_view(text).substr(at, n));
      at += n;
    }
  } else {
    for (size_t next; count != 0 && (next = text.find(old, at)) != std::string::npos; at = next + old.size()) {
      grow(std::string_view(text).substr(at, next - at));
      grow(fresh);
      if (count > 0) --count;
    }
  }
  if (at < text.size()) grow(std::string_view(text).substr(at));
  return Value(std::move(out));
}

Value joinMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const BoundArgs a(args, "join", {"iterable"}, 1);
  std::string out;
  int64_t i = 0;
  for (const Value& item : itemsOf(rt, *a[0])) {
    if (!item.isString()) raise("sequence item {}: expected str instance, {} found", i, typeName(item));
    rt.charge(self.string().size() + item.string().size());
    if (i++ > 0) out += self.string();
    out += item.string();
  }
  return Value(std::move(out));
}

Value padMethod(Runtime& rt, const Value& self, CallArgs& args, int side) {
  const BoundArgs a(args, "just", {"width", "fillchar"}, 1);
  const std::string fill = a.textOr(1, " ");
  if (countCharacters(fill) != 1) raise("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(countCharacters(self.string()));
  const int64_t total = std::max<int64_t>(a.integerOr(0, 0) - length, 0);
  rt.charge(static_cast<size_t>(total));
  // Python's center gives the odd character to the left when the width is odd too.
  const int64_t left = side < 0 ? 0 : side > 0 ? total : total / 2 + (total & (total + length) & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.string();
  for (int64_t i = left; i < total; ++i) out += fill;
  return Value(std::move(out));
}

Value partition(const Value& self, CallArgs& args, bool last) {
  const BoundArgs a(args, "partition", {"sep"}, 1);
  const std::string separator = a.textOr(0, "");
  if (separator.empty()) raise("empty separator");
  const std::string& text = self.string();
  const size_t at = last ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    return last ? makeTuple({Value(""), Value(""), self}) : makeTuple({self, Value(""), Value("")});
  }
  return makeTuple({Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))});
}

// True when there is a character and test holds for all of them.
Value allCharacters(const Value& self, bool (*test)(uint32_t)) {
  for (size_t i = 0; i < self.string().size();) {
    const Utf8Step step = decodeUtf8(std::string_view(self.string()).substr(i));
    if (!test(step.code)) return Value(false);
    i += static_cast<size_t>(step.length);
  }
  return Value(!self.string().empty());
}

Value formatMethod(Runtime& rt, const Value& self, CallArgs& args) {
  const std::string& format = self.string();
  std::string out;
  size_t automatic = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out.push_back(c);
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out.push_back(c);
      ++i;
      continue;
    }
    const size_t close = c == '{' ? format.find('}', i) : std::string::npos;
    if (close == std::string::npos) raise("Single '{}' encountered in format string", c);
    const std::string field = format.substr(i + 1, close - i - 1);
    i = close;
    const Value* value = nullptr;
    if (field.empty() || (field.find_first_not_of("0123456789") == std::string::npos && field.size() < 4)) {
      const size_t index = field.empty() ? automatic++ : static_cast<size_t>(std::stoul(field));
      if (index >= args.positional.size()) raise("Replacement index {} out of range for positional args tuple", index);
      value = &args.positional[index];
    } else {
      if (field.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") !=
          std::string::npos) {
        raise("the format field '{}' is not supported; only names and numbers are", printable(field));
      }
      for (const auto& [name, named] : args.named) {
        if (name == field) value = &named;
      }
      if (value == nullptr) raise("the format names '{}', which isn't given", field);
    }
    const std::string text = str(*value);
    rt.charge(text.size());
    out += text;
  }
  return Value(rt.charged(std::move(out)));
}

}  // namespace

const MethodTable& textMethods() {
  static const MethodTable table = {
      {"upper", [](Runtime& rt, const Value& s, CallArgs&) { return Value(rt.charged(toUpper(s.string()))); }},
      {"lower", [](Runtime& rt, const Value& s, CallArgs&) { return Value(rt.charged(toLower(s.string()))); }},
      {"casefold", [](Runtime& rt, const Value& s, CallArgs&) { return Value(rt.charged(toLower(s.string()))); }},
      {"title", [](Runtime& rt, const Value& s, CallArgs&) { return Value(rt.charged(titleCase(s.string()))); }},
      {"capitalize", [](Runtime& rt, const Value& s, CallArgs&) { return Value(rt.charged(capitalize(s.string()))); }},
      {"swapcase",
       [](Runtime& rt, const Value& s, CallArgs&) {
         std::string out;
         for (const auto& c : characters(s.string())) out += toUpper(c) == c ? toLower(c) : toUpper(c);
         return Value(rt.charged(std::move(out)));
       }},
      {"strip",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         return Value(rt.charged(stripText(s.string(), BoundArgs(args, "strip", {"chars"})[0], true, true)));
       }},
      {"lstrip",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         return Value(rt.charged(stripText(s.string(), BoundArgs(args, "lstrip", {"chars"})[0], true, false)));
       }},
      {"rstrip",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         return Value(rt.charged(stripText(s.string(), BoundArgs(args, "rstrip", {"chars"})[0], false, true)));
       }},
      {"split", [](Runtime& rt, const Value& s, CallArgs& args) { return splitMethod(rt, s, args, false); }},
      {"rsplit", [](Runtime& rt, const Value& s, CallArgs& args) { return splitMethod(rt, s, args, true); }},
      {"splitlines",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         const BoundArgs a(args, "splitlines", {"keepends"});
         rt.charge(s.string().size());
         return textList(rt, splitLines(s.string(), a.truthOr(0, false)));
       }},
      {"startswith", [](Runtime& rt, const Value& s, CallArgs& args) { return affixTest(rt, s, args, true); }},
      {"endswith", [](Runtime& rt, const Value& s, CallArgs& args) { return affixTest(rt, s, args, false); }},
      {"replace", replaceMethod},
      {"join", joinMethod},
      {"format", formatMethod},
      {"find", [](Runtime& rt, const Value& s, CallArgs& args) { return Value(findIn(rt, s, args, false)); }},
      {"rfind", [](Runtime& rt, const Value& s, CallArgs& args) { return Value(findIn(rt, s, args, true)); }},
      {"index",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         const int64_t at = findIn(rt, s, args, false);
         if (at < 0) raise("substring not found");
         return Value(at);
       }},
      {"rindex",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         const int64_t at = findIn(rt, s, args, true);
         if (at < 0) raise("substring not found");
         return Value(at);
       }},
      {"count",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         const BoundArgs a(args, "count", {"sub", "start", "end"}, 1);
         const Window w = window(s.string(), a, 1);
         const std::string sub = a.textOr(0, "");
         rt.step(static_cast<int64_t>(s.string().size() / 16));
         if (!w.valid) return Value(int64_t{0});
         if (sub.empty()) return Value(static_cast<int64_t>(countCharacters(w.text)) + 1);
         int64_t n = 0;
         for (size_t at = 0; (at = w.text.find(sub, at)) != std::string_view::npos; at += sub.size()) ++n;
         return Value(n);
       }},
      {"zfill",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         const BoundArgs a(args, "zfill", {"width"}, 1);
         const int64_t missing = a.integerOr(0, 0) - static_cast<int64_t>(countCharacters(s.string()));
         if (missing <= 0) return s;
         rt.charge(static_cast<size_t>(missing));
         const size_t sign = s.string().starts_with('-') || s.string().starts_with('+') ? 1 : 0;
         return Value(s.string().substr(0, sign) + std::string(static_cast<size_t>(missing), '0') +
                      s.string().substr(sign));
       }},
      {"ljust", [](Runtime& rt, const Value& s, CallArgs& args) { return padMethod(rt, s, args, -1); }},
      {"rjust", [](Runtime& rt, const Value& s, CallArgs& args) { return padMethod(rt, s, args, 1); }},
      {"center", [](Runtime& rt, const Value& s, CallArgs& args) { return padMethod(rt, s, args, 0); }},
      {"partition", [](Runtime&, const Value& s, CallArgs& args) { return partition(s, args, false); }},
      {"rpartition", [](Runtime&, const Value& s, CallArgs& args) { return partition(s, args, true); }},
      {"removeprefix",
       [](Runtime&, const Value& s, CallArgs& args) {
         const std::string prefix = BoundArgs(args, "removeprefix", {"prefix"}, 1).textOr(0, "");
         return s.string().starts_with(prefix) ? Value(s.string().substr(prefix.size())) : s;
       }},
      {"removesuffix",
       [](Runtime&, const Value& s, CallArgs& args) {
         const std::string suffix = BoundArgs(args, "removesuffix", {"suffix"}, 1).textOr(0, "");
         return s.string().ends_with(suffix) ? Value(s.string().substr(0, s.string().size() - suffix.size())) : s;
       }},
      {"expandtabs",
       [](Runtime& rt, const Value& s, CallArgs& args) {
         const int64_t size = std::clamp<int64_t>(BoundArgs(args, "expandtabs", {"tabsize"}).integerOr(0, 8), 0, 10000);
         std::string out;
         int64_t column = 0;
         for (const std::string& c : characters(s.string())) {
           if (c == "\t") {
             const auto missing = static_cast<size_t>(size > 0 ? size - column % size : 0);
             rt.charge(missing);
             out.append(missing, ' ');
             column += static_cast<int64_t>(missing);
           } else {
             out += c;
             column = c == "\n" || c == "\r" ? 0 : column + 1;
           }
         }
         return Value(rt.charged(std::move(out)));
       }},
      {"istitle",
       [](Runtime&, const Value& s, CallArgs&) {
         bool any = false, in_word = false;
         for (const std::string& c : characters(s.string())) {
           const bool lower = toUpper(c) != c, upper = toLower(c) != c;
           if (upper ? in_word : lower && !in_word) return Value(false);
           in_word = lower || upper;
           any |= in_word;
         }
         return Value(any);
       }},
      {"isascii",
       [](Runtime&, const Value& s, CallArgs&) {
         return Value(std::none_of(s.string().begin(), s.string().end(),
                                   [](char c) { return static_cast<signed char>(c) < 0; }));
       }},
      {"isspace", [](Runtime&, const Value& s, CallArgs&) { return allCharacters(s, isPythonSpace); }},
      {"isalpha", [](Runtime&, const Value& s, CallArgs&) { return allCharacters(s, isLetter); }},
      {"isdigit", [](Runtime&, const Value& s, CallArgs&) { return allCharacters(s, isDecimalDigit); }},
      {"isdecimal", [](Runtime&, const Value& s, CallArgs&) { return allCharacters(s, isDecimalDigit); }},
      {"isnumeric", [](Runtime&, const Value& s, CallArgs&) { return allCharacters(s, isNumber); }},
      {"isalnum",
       [](Runtime&, const Value& s, CallArgs&) {
         return allCharacters(s, [](uint32_t code) { return isLetter(code) || isNumber(code); });
       }},
      {"isupper",
       [](Runtime&, const Value& s, CallArgs&) {
         return Value(toUpper(s.string()) == s.string() && toLower(s.string()) != s.string());
       }},
      {"islower",
       [](Runtime&, const Value& s, CallArgs&) {
         return Value(toLower(s.string()) == s.string() && toUpper(s.string()) != s.string());
       }},
  };
  return table;
}

}  // namespace chorus::tmpl
