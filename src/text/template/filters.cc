// The filters that follow "|": those on single values here, those on collections in collection_filters.cc.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/template/filter_table.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

std::string input(Runtime& rt, const Value& v) {
  rt.charge(static_cast<size_t>(v.weight()));
  return rt.charged(str(v));
}

Value defaultFilter(Runtime&, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "default", {"default_value", "boolean"});
  if (v.isUndefined() || (a.truthOr(1, false) && !truthy(v))) return a[0] != nullptr ? *a[0] : Value("");
  return v;
}

Value replaceFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "replace", {"old", "new", "count"}, 2);
  CallArgs texts;
  texts.positional = {Value(str(*a[0])), Value(str(*a[1]))};
  if (a[2] != nullptr && !a[2]->isNone()) texts.positional.push_back(*a[2]);
  return *callMethod(rt, Value(input(rt, v)), "replace", texts);
}

// Jinja's own title: words begin after white space, hyphens and brackets.
Value titleFilter(Runtime& rt, const Value& v, CallArgs&) {
  std::string out;
  bool begin = true;
  for (const std::string& c : characters(input(rt, v))) {
    const uint32_t code = decodeUtf8(c).code;
    out += begin ? toUpper(c) : toLower(c);
    begin = isUnicodeSpace(code) || std::string_view("-({[<").find(c[0]) != std::string_view::npos;
  }
  return Value(std::move(out));
}

std::string escapeHtml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

// Letters, digits and -._~ stay, and a slash outside of queries; in queries a space is a plus.
std::string percentEncode(const std::string& text, bool in_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (c == '/' && !in_query);
    if (plain)
      out.push_back(c);
    else if (c == ' ' && in_query)
      out.push_back('+');
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Value urlencodeFilter(Runtime& rt, const Value& v, CallArgs&) {
  const bool pairs = v.isDict() || v.isSequence() || v.isUndefined();
  if (!pairs) return Value(rt.charged(percentEncode(input(rt, v), false)));
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += rt.charged(percentEncode(input(rt, key), true) + "=" + percentEncode(input(rt, value), true));
  };
  if (v.isDict()) {
    for (const auto& [key, value] : v.dict()->entries) add(key, value);
  } else {
    for (const Value& pair : itemsOf(rt, v)) {
      const auto parts = itemsOf(rt, pair);
      if (parts.size() != 2) raise("urlencode needs pairs");
      add(parts[0], parts[1]);
    }
  }
  return Value(std::move(out));
}

Value xmlattrFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "xmlattr", {"autospace"});
  if (!v.isDict()) raise("xmlattr needs a dict, not {}", typeName(v));
  std::string out;
  for (const auto& [key, value] : v.dict()->entries) {
    if (value.isNone() || value.isUndefined()) continue;
    const std::string name = input(rt, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      raise("Invalid character in attribute name: {}", printable(name));
    if (!out.empty()) out += ' ';
    out += rt.charged(escapeHtml(name) + "=\"" + escapeHtml(input(rt, value)) + "\"");
  }
  return Value(!out.empty() && a.truthOr(0, true) ? " " + out : out);
}

std::optional<int64_t> parseInteger(const std::string& raw, int base) {
  std::string text = stripText(raw, nullptr, true, true);
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '_' && std::isalnum(static_cast<unsigned char>(text[i - 1])) &&
        std::isalnum(static_cast<unsigned char>(text[i + 1])))
      text.erase(i, 1);
  }
  const std::string_view allowed =
      base == 10 ? "0123456789" : "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  if (text.size() == sign || text.find_first_not_of(allowed, sign) != std::string::npos) return std::nullopt;
  errno = 0;
  char* end = nullptr;
  const long long number = std::strtoll(text.c_str(), &end, base);
  if (errno == ERANGE) raise("an integer doesn't fit 64 bits");
  return *end == '\0' ? std::optional<int64_t>(number) : std::nullopt;
}

std::optional<double> parseFloat(const std::string& raw) {
  std::string text = stripText(raw, nullptr, true, true);
  std::string lower = toLower(text);
  if (!lower.empty() && (lower[0] == '+' || lower[0] == '-')) lower.erase(0, 1);
  const bool special = lower == "inf" || lower == "infinity" || lower == "nan";
  if (!special && (lower.empty() || lower.find_first_not_of("0123456789.e+-") != std::string::npos))
    return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return *end == '\0' && end != text.c_str() ? std::optional(number) : std::nullopt;
}

Value intFilter(Runtime&, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "int", {"default", "base"});
  requireDefined(v);
  const auto base = static_cast<int>(std::clamp<int64_t>(a.integerOr(1, 10), 2, 36));
  if (v.isInteger()) return Value(v.integer());
  std::optional<double> number;
  if (v.isString()) {
    if (const auto whole = parseInteger(v.string(), base)) return Value(*whole);
    number = parseFloat(v.string());
  } else if (v.kind() == Kind::kFloat) {
    number = v.number();
  }
  if (number && std::fabs(*number) < 9.2e18) return Value(static_cast<int64_t>(*number));
  return a[0] != nullptr ? *a[0] : Value(int64_t{0});
}

Value floatFilter(Runtime&, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "float", {"default"});
  requireDefined(v);
  if (v.isNumber()) return Value(v.number());
  if (v.isString()) {
    if (const auto number = parseFloat(v.string())) return Value(*number);
  }
  return a[0] != nullptr ? *a[0] : Value(0.0);
}

Value absFilter(Runtime&, const Value& v, CallArgs&) {
  requireDefined(v);
  if (!v.isNumber()) raise("bad operand type for abs(): '{}'", typeName(v));
  if (!v.isInteger()) return Value(std::fabs(v.number()));
  return v.integer() < 0 ? unaryOperation("-", v) : Value(v.integer());
}

Value roundFilter(Runtime&, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "round", {"precision", "method"});
  const int64_t precision = std::clamp<int64_t>(a.integerOr(0, 0), -300, 300);
  const std::string method = a.textOr(1, "common");
  requireDefined(v);
  if (!v.isNumber()) raise("type {} doesn't define __round__ method", typeName(v));
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = v.number() * scale;
    return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") raise("method must be common, ceil or floor");
  if (v.isInteger() && precision >= 0) return Value(v.integer());
  if (precision >= 0) {
    // Correctly rounded decimals, as Python's round.
    char buffer[700];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), v.number());
    return Value(std::strtod(buffer, nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  const double rounded = std::nearbyint(v.number() / scale) * scale;
  return v.isInteger() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
}

Value indentFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "indent", {"width", "first", "blank"});
  std::string prefix;
  if (a[0] != nullptr && a[0]->isString()) {
    prefix = a[0]->string();
  } else {
    const auto width = static_cast<size_t>(std::clamp<int64_t>(a.integerOr(0, 4), 0, 10000));
    prefix.assign(width, ' ');
  }
  const bool blank = a.truthOr(2, false);
  requireDefined(v);
  if (!v.isString()) raise("indent needs a str, not {}", typeName(v));
  CallArgs none;
  const Value lines = *callMethod(rt, Value(input(rt, v) + "\n"), "splitlines", none);
  std::string out;
  bool first = true;
  for (const Value& line : lines.sequence().items) {
    rt.charge(line.string().size() + prefix.size() + 1);
    if (!first) out += "\n";
    const bool wanted = first ? a.truthOr(1, false) : (blank || !line.string().empty());
    if (wanted) out += prefix;
    out += line.string();
    first = false;
  }
  return Value(std::move(out));
}

Value tojsonFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  return Value(toJson(rt, v, a[1] != nullptr ? *a[1] : Value(), a[2] != nullptr ? *a[2] : Value(), a.truthOr(0, false),
                      a.truthOr(3, false)));
}

Value formatFilter(Runtime& rt, const Value& v, CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty())
    raise("can't handle positional and keyword arguments at the same time");
  if (args.named.empty()) return Value(percentFormat(rt, input(rt, v), makeTuple(args.positional)));
  auto names = std::make_shared<Dict>();
  for (const auto& [name, value] : args.named) names->set(Value(name), value);
  return Value(percentFormat(rt, input(rt, v), Value(std::move(names))));
}

Value wordcountFilter(Runtime& rt, const Value& v, CallArgs&) {
  int64_t count = 0;
  bool in_word = false;
  for (const std::string& c : characters(input(rt, v))) {
    const bool word = isWordCharacter(decodeUtf8(c).code);
    count += word && !in_word;
    in_word = word;
  }
  return Value(count);
}

Value truncateFilter(Runtime& rt, const Value& v, CallArgs& args) {
  const BoundArgs a(args, "truncate", {"length", "killwords", "end", "leeway"});
  if (!v.isString()) lengthOf(v);  // only what has a length can be too long
  const std::string text = input(rt, v), end = a.textOr(2, "...");
  const auto all = characters(text);
  const int64_t length = a.integerOr(0, 255), leeway = a.integerOr(3, 5), size = static_cast<int64_t>(all.size());
  const int64_t keep = length - static_cast<int64_t>(countCharacters(end));
  if (keep < 0) raise("expected length >= {}", countCharacters(end));
  if (size <= length + leeway) return Value(text);
  std::string cut;
  for (int64_t i = 0; i < keep; ++i) cut += all[static_cast<size_t>(i)];
  if (!a.truthOr(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return Value(cut + end);
}
}  // namespace

const FilterTable& textFilters() {
  static const FilterTable table = {
      {"trim",
       [](Runtime& rt, const Value& v, CallArgs& args) {
         return Value(stripText(input(rt, v), BoundArgs(args, "trim", {"chars"})[0], true, true));
       }},
      {"upper", [](Runtime& rt, const Value& v, CallArgs&) { return Value(toUpper(input(rt, v))); }},
      {"lower", [](Runtime& rt, const Value& v, CallArgs&) { return Value(toLower(input(rt, v))); }},
      {"capitalize", [](Runtime& rt, const Value& v, CallArgs&) { return Value(capitalize(input(rt, v))); }},
      {"title", titleFilter},
      {"string", [](Runtime& rt, const Value& v, CallArgs&) { return Value(input(rt, v)); }},
      {"safe", [](Runtime& rt, const Value& v, CallArgs&) { return Value(input(rt, v)); }},
      {"escape", [](Runtime& rt, const Value& v, CallArgs&) { return Value(rt.charged(escapeHtml(input(rt, v)))); }},
      {"e", [](Runtime& rt, const Value& v, CallArgs&) { return Value(rt.charged(escapeHtml(input(rt, v)))); }},
      {"forceescape",
       [](Runtime& rt, const Value& v, CallArgs&) { return Value(rt.charged(escapeHtml(input(rt, v)))); }},
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
      {"center",
       [](Runtime& rt, const Value& v, CallArgs& args) {
         CallArgs width;
         width.positional.emplace_back(BoundArgs(args, "center", {"width"}).integerOr(0, 80));
         return *callMethod(rt, Value(input(rt, v)), "center", width);
       }},
  };
  return table;
}

bool hasFilter(std::string_view name) { return textFilters().contains(name) || collectionFilters().contains(name); }

Value applyFilter(Runtime& rt, const std::string& name, const Value& value, CallArgs& args) {
  auto it = textFilters().find(name);
  if (it == textFilters().end()) {
    it = collectionFilters().find(name);
    // Those of Jinja's that lay out web pages, or differ from run to run.
    for (const std::string_view other : {"filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap"}) {
      if (name == other) raise("the filter '{}' is not supported in chat templates", name);
    }
    if (it == collectionFilters().end()) raise("No filter named '{}'.", printable(name));
  }
  return it->second(rt, value, args);
}

}  // namespace chorus::tmpl
