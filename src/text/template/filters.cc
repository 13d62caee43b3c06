// The filters that follow "|": this file has those on single values, collection_filters.cc those on collections.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>

#include "text/template/filter_table.h"
#include "text/template/number_text.h"
#include "text/template/text_scan.h"
#include "text/template/wide_integer.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

Value defaultFilter(Runtime&, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "default", {"default_value", "boolean"});
  if (v.isUndefined() || (a.truthOr(1, false) && !truthy(v))) return a[0] != nullptr ? *a[0] : Value::ofText("");
  return v;
}

Value replaceFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "replace", {"old", "new", "count"}, 2);
  const Value values[] = {str(rt, *a[0]), str(rt, *a[1]), a[2] != nullptr ? *a[2] : Value()};
  CallArgs texts{.positional = {values, a.given(2) ? size_t{3} : size_t{2}}, .named = {}};
  return *callMethod(rt, str(rt, v), "replace", texts);
}

// Jinja's title filter: a word begins after white space, a hyphen or an opening bracket.
Value titleFilter(Runtime& rt, const Value& v, CallArgs&) {
  TextBuffer out(rt);
  bool begin = true;
  const Value text = str(rt, v);
  for (Characters c(rt, text.string()); c.next();) {
    appendCase(out, begin ? Case::kUpper : Case::kLower, c.bytes());
    begin = isUnicodeSpace(c.code()) || std::string_view("-({[<").find(c.bytes()[0]) != std::string_view::npos;
  }
  return out.text();
}

void putEscaped(TextBuffer& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&#34;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      default:
        out.push(c);
    }
  }
}

Value escapeFilter(Runtime& rt, const Value& v, CallArgs&) {
  TextBuffer out(rt);
  putEscaped(out, str(rt, v).string());
  return out.text();
}

// Letters, digits and -._~ are kept, and also slashes outside of queries. In a query a space becomes a plus.
void putPercentEncoded(TextBuffer& out, std::string_view text, bool in_query) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (c == '/' && !in_query);
    if (plain) {
      out.push(c);
    } else if (c == ' ' && in_query) {
      out.push('+');
    } else {
      const auto byte = static_cast<unsigned char>(c);
      const char encoded[] = {'%', kDigits[byte >> 4], kDigits[byte & 15]};
      out.append(std::string_view(encoded, 3));
    }
  }
}

Value urlencodeFilter(Runtime& rt, const Value& v, CallArgs&) {
  TextBuffer out(rt);
  const bool pairs = v.isDict() || v.isSequence() || v.isUndefined();
  if (!pairs) {
    putPercentEncoded(out, str(rt, v).string(), false);
    return out.text();
  }
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out.push('&');
    putPercentEncoded(out, str(rt, key).string(), true);
    out.push('=');
    putPercentEncoded(out, str(rt, value).string(), true);
  };
  if (v.isDict()) {
    for (const auto& [key, value] : v.dict().entries()) add(key, value);
    return out.text();
  }
  Items items(rt, v);
  for (Value pair; items.next(pair);) {
    const Value parts = sequenceOf(rt, pair);
    if (parts.sequence().size() != 2) raise("urlencode needs pairs");
    add(parts.sequence().at(0), parts.sequence().at(1));
  }
  return out.text();
}

Value xmlattrFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "xmlattr", {"autospace"});
  if (!v.isDict()) raise("xmlattr needs a dict, not {}", typeName(v));
  TextBuffer out(rt);
  for (const auto& [key, value] : v.dict().entries()) {
    rt.charge(sizeof(Dict::Entry));
    if (value.isNone() || value.isUndefined()) continue;
    const std::string_view name = str(rt, key).string();
    rt.charge(8 * name.size());
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
      raise("Invalid character in attribute name: {}", printable(name));
    if (!out.empty() || a.truthOr(0, true)) out.push(' ');
    putEscaped(out, name);
    out.append("=\"");
    putEscaped(out, str(rt, value).string());
    out.push('"');
  }
  return out.text();
}

Value intFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "int", {"default", "base"});
  requireDefined(v);
  const auto base = static_cast<int>(std::clamp<int64_t>(a.integerOr(1, 10), 2, 36));
  if (v.isInteger()) return Value(v.integer());
  if (v.isWideInteger()) return v;
  std::optional<double> number;
  if (v.isString()) {
    if (const auto whole = parseInteger(rt, v.string(), base)) return *whole;
    number = parseFloat(rt, v.string());
  } else if (v.kind() == Kind::kFloat) {
    number = v.number();
    if (std::isinf(*number)) raise("cannot convert float infinity to integer");
  }
  if (number && std::isfinite(*number)) {
    const std::string digits = wideDigitsOf(rt, *number);
    return digits.empty() ? Value(static_cast<int64_t>(*number)) : integerOfDigits(rt, digits);
  }
  return a[0] != nullptr ? *a[0] : Value(int64_t{0});
}

Value floatFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "float", {"default"});
  requireDefined(v);
  if (v.isNumber()) return Value(v.number());
  if (v.isWideInteger()) {
    const auto number = parseFloat(rt, v.digits());
    if (!number || std::isinf(*number)) raise("int too large to convert to float");
    return Value(*number);
  }
  if (v.isString()) {
    if (const auto number = parseFloat(rt, v.string())) return Value(*number);
  }
  return a[0] != nullptr ? *a[0] : Value(0.0);
}

Value absFilter(Runtime& rt, const Value& v, CallArgs&) {
  requireDefined(v);
  if (v.isWideInteger()) return v.digits().starts_with('-') ? unaryOperation(rt, Op::kSub, v) : v;
  if (!v.isNumber()) raise("bad operand type for abs(): '{}'", typeName(v));
  if (!v.isInteger()) return Value(std::fabs(v.number()));
  return v.integer() < 0 ? unaryOperation(rt, Op::kSub, v) : Value(v.integer());
}

// Rounds an integer to tens, hundreds, ... like Python's round(): a half is rounded to even.
Value roundedInteger(Runtime& rt, int64_t number, int64_t zeros) {
  if (zeros > 19) return Value(int64_t{0});
  __int128 scale = 1;
  for (int64_t i = 0; i < zeros; ++i) scale *= 10;
  __int128 tens = number / scale;
  const __int128 rest = number % scale < 0 ? -(number % scale) : number % scale;
  if (2 * rest > scale || (2 * rest == scale && tens % 2 != 0)) tens += number < 0 ? -1 : 1;
  const __int128 out = tens * scale;
  if (out >= INT64_MIN && out <= INT64_MAX) return Value(static_cast<int64_t>(out));
  // The result does not fit into int64_t.
  return integerOfDigits(
      rt, out < 0 ? fmt::format("-{}", static_cast<uint64_t>(-out)) : fmt::format("{}", static_cast<uint64_t>(out)));
}

// Rounds to digits after the point. Decimal digits are rounded correctly, as by Python's round().
Value roundedFloat(Runtime& rt, double number, int64_t precision) {
  // No float beyond this has a fraction.
  if (!std::isfinite(number) || number == 0 || std::fabs(number) >= 0x1p52) return Value(number);
  // 17 significant digits identify a float, so rounding to more of them does not change it.
  constexpr int64_t kMostSignificant = 20;
  const auto exponent = static_cast<int64_t>(std::floor(std::log10(std::fabs(number))));
  if (precision > kMostSignificant - exponent) return Value(number);
  char digits[400];  // at most 17 before the point, and the precision of the smallest float
  rt.charge(8 * (static_cast<uint64_t>(precision) + 32));
  const char* const end =
      std::to_chars(digits, std::end(digits), number, std::chars_format::fixed, static_cast<int>(precision)).ptr;
  std::from_chars(digits, end, number);
  return Value(number);
}

Value roundFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "round", {"precision", "method"});
  const int64_t precision = std::clamp<int64_t>(a.integerOr(0, 0), -300, 300);
  const std::string_view method = a.textOr(1, "common");
  requireDefined(v);
  if (!v.isNumber()) raise("type {} doesn't define __round__ method", typeName(v));
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = v.number() * scale;
    return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") raise("method must be common, ceil or floor");
  if (v.isInteger()) return precision >= 0 ? Value(v.integer()) : roundedInteger(rt, v.integer(), -precision);
  if (precision >= 0) return roundedFloat(rt, v.number(), precision);
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return Value(std::nearbyint(v.number() / scale) * scale);
}

Value indentFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "indent", {"width", "first", "blank"});
  TextBuffer spaces(rt);
  if (a[0] == nullptr || !a[0]->isString())
    spaces.append(static_cast<size_t>(std::clamp<int64_t>(a.integerOr(0, 4), 0, 10000)), ' ');
  const std::string_view prefix = a[0] != nullptr && a[0]->isString() ? a[0]->string() : spaces.view();
  const bool blank = a.truthOr(2, false);
  requireDefined(v);
  if (!v.isString()) raise("indent needs a str, not {}", typeName(v));
  TextBuffer out(rt);
  std::string_view line;
  // Jinja appends a line end before it splits the text with Python's splitlines().
  bool first = true;
  for (Lines lines(rt, v.string(), true); lines.next(line, false); first = false) {
    if (!first) out.push('\n');
    if (first ? a.truthOr(1, false) : (blank || !line.empty())) out.append(prefix);
    out.append(line);
  }
  return out.text();
}

Value tojsonFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  return toJson(rt, v, a[1] != nullptr ? *a[1] : Value(), a[2] != nullptr ? *a[2] : Value(), a.truthOr(0, false),
                a.truthOr(3, false));
}

Value formatFilter(Runtime& rt, const Value& v, CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty())
    raise("can't handle positional and keyword arguments at the same time");
  const std::string_view format = str(rt, v).string();
  if (args.named.empty())
    return percentFormat(rt, format, Sequence::make(rt, Sequence::Flavor::kTuple, args.positional));
  Dict* const names = Dict::make(rt, args.named.size());
  for (const auto& [name, value] : args.named) names->set(rt, Value::ofText(name), value);
  return percentFormat(rt, format, Value(names));
}

Value wordcountFilter(Runtime& rt, const Value& v, CallArgs&) {
  int64_t count = 0;
  bool in_word = false;
  const Value text = str(rt, v);
  for (Characters c(rt, text.string()); c.next();) {
    const bool word = isWordCharacter(c.code());
    count += word && !in_word;
    in_word = word;
  }
  return Value(count);
}

Value truncateFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "truncate", {"length", "killwords", "end", "leeway"});
  const std::string_view end = a.textOr(2, "...");
  const int64_t length = a.integerOr(0, 255), leeway = a.integerOr(3, 5), size = lengthOf(rt, v);
  const auto end_size = static_cast<int64_t>(countOf(rt, end));
  int64_t keep, most;
  if (__builtin_sub_overflow(length, end_size, &keep) || keep < 0) raise("expected length >= {}", end_size);
  if (__builtin_add_overflow(length, leeway, &most) || size <= most) return v;
  if (!v.isString()) raise("truncate can't shorten '{}' objects", typeName(v));
  const std::string_view text = v.string();
  std::string_view cut = text.substr(0, byteOffset(rt, text, static_cast<size_t>(keep)));
  if (!a.truthOr(1, false)) {
    rt.charge(cut.size());
    cut = cut.substr(0, cut.rfind(' '));
  }
  return rt.concat(cut, end);
}

Value centerFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const Value width(BoundArgs(args, "center", {"width"}).integerOr(0, 80));
  CallArgs method{.positional = {&width, 1}, .named = {}};
  return *callMethod(rt, str(rt, v), "center", method);
}

Value trimFilter(Runtime& rt, const Value& v, CallArgs& args) {
  return Value::ofText(strippedBy(rt, str(rt, v).string(), BoundArgs(args, "trim", {"chars"})[0], true, true));
}

Value stringFilter(Runtime& rt, const Value& v, CallArgs&) { return str(rt, v); }
}  // namespace

const FilterTable& textFilters() {
  static const FilterTable table = {
      {"trim", trimFilter},
      {"upper", [](Runtime& rt, const Value& v, CallArgs&) { return withCase(rt, str(rt, v).string(), Case::kUpper); }},
      {"lower", [](Runtime& rt, const Value& v, CallArgs&) { return withCase(rt, str(rt, v).string(), Case::kLower); }},
      {"capitalize", [](Runtime& rt, const Value& v, CallArgs&) { return capitalized(rt, str(rt, v).string()); }},
      {"title", titleFilter},
      {"string", stringFilter},
      {"safe", stringFilter},
      {"escape", escapeFilter},
      {"e", escapeFilter},
      {"forceescape", escapeFilter},
      {"urlencode", urlencodeFilter},
      {"xmlattr", xmlattrFilter},
      {"default", defaultFilter},
      {"d", defaultFilter},
      {"replace", replaceFilter},
      {"int", intFilter},
      {"float", floatFilter},
      {"abs", absFilter},
      {"round", roundFilter},
      {"indent", indentFilter},
      {"tojson", tojsonFilter},
      {"format", formatFilter},
      {"wordcount", wordcountFilter},
      {"truncate", truncateFilter},
      {"center", centerFilter},
  };
  return table;
}

bool hasFilter(std::string_view name) { return textFilters().contains(name) || collectionFilters().contains(name); }

std::vector<std::string_view> filterNames() {
  std::vector<std::string_view> names;
  for (const FilterTable* table : {&textFilters(), &collectionFilters()}) {
    for (const auto& entry : *table) names.push_back(entry.first);
  }
  return names;
}

Value applyFilter(Runtime& rt, std::string_view name, const Value& value, CallArgs& args) {
  rt.step();
  auto it = textFilters().find(name);
  if (it == textFilters().end()) {
    it = collectionFilters().find(name);
    // Filters of Jinja that format web pages, or whose result differs from run to run, are left out.
    for (const std::string_view other : {"filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap"}) {
      if (name == other) raise("the filter '{}' is not supported in chat templates", name);
    }
    if (it == collectionFilters().end()) raise("No filter named '{}'.", printable(name));
  }
  return it->second(rt, value, args);
}

}  // namespace chorus::tmpl
