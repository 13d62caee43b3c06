// Prints values as Python does.
#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <string>

#include "text/template/float_text.h"
#include "text/template/text_scan.h"

namespace chorus::tmpl {
namespace {

bool isPrintable(uint32_t code) {
  if (code < 0x7F) return code >= 0x20;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void putText(Runtime& rt, TextBuffer& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out.push(quote);
  for (Characters c(rt, text); c.next();) {
    const uint32_t code = c.code();
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out.push('\\');
      out.push(static_cast<char>(code));
    } else if (code == '\n') {
      out.append("\\n");
    } else if (code == '\r') {
      out.append("\\r");
    } else if (code == '\t') {
      out.append("\\t");
    } else if (isPrintable(code)) {
      out.append(c.bytes());
    } else if (code < 0x100) {
      out.append(fmt::format("\\x{:02x}", code));
    } else if (code < 0x10000) {
      out.append(fmt::format("\\u{:04x}", code));
    } else {
      out.append(fmt::format("\\U{:08x}", code));
    }
  }
  out.push(quote);
}

void put(Runtime& rt, TextBuffer& out, const Value& v);

void putSequence(Runtime& rt, TextBuffer& out, const Sequence& s) {
  using Flavor = Sequence::Flavor;
  if (s.flavor() == Flavor::kRange) {
    return out.append(s.step() == 1 ? fmt::format("range({}, {})", s.start(), s.stop())
                                    : fmt::format("range({}, {}, {})", s.start(), s.stop(), s.step()));
  }
  if (s.flavor() == Flavor::kGenerator) return out.append("<generator object>");
  const bool tuple = s.flavor() == Flavor::kTuple;
  out.append(s.flavor() == Flavor::kList     ? "["
             : tuple                         ? "("
             : s.flavor() == Flavor::kKeys   ? "dict_keys(["
             : s.flavor() == Flavor::kValues ? "dict_values(["
                                             : "dict_items([");
  bool first = true;
  for (const Value& item : s.items()) {
    if (!first) out.append(", ");
    first = false;
    put(rt, out, item);
  }
  out.append(s.flavor() == Flavor::kList ? "]" : !tuple ? "])" : s.size() == 1 ? ",)" : ")");
}

void putDict(Runtime& rt, TextBuffer& out, const Dict& dict) {
  out.push('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    put(rt, out, key);
    out.append(": ");
    put(rt, out, value);
  }
  out.push('}');
}

[[gnu::noinline]] void putScalar(TextBuffer& out, const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return out.append("Undefined");
    case Kind::kNone:
      return out.append("None");
    case Kind::kBool:
      return out.append(v.boolean() ? "True" : "False");
    case Kind::kInt:
      return out.append(std::to_string(v.integer()));
    case Kind::kWideInt:
      return out.append(v.digits());
    case Kind::kFloat:
      return out.append(floatRepr(v.number()));
    case Kind::kNamespace:
      return out.append("<Namespace>");
    case Kind::kFunction:
      out.append("<function ");
      out.append(v.function().name());
      return out.append(">");
    default:
      return out.append(fmt::format("<LoopContext {}/{}>", v.loop().index() + 1, v.loop().items().size()));
  }
}

void put(Runtime& rt, TextBuffer& out, const Value& v) {
  rt.charge(sizeof(Value));
  switch (v.kind()) {
    case Kind::kString:
      return putText(rt, out, v.string());
    case Kind::kSequence:
      rt.checkStack();
      return putSequence(rt, out, v.sequence());
    case Kind::kDict:
      rt.checkStack();
      return putDict(rt, out, v.dict());
    default:
      return putScalar(out, v);
  }
}
}  // namespace

Value str(Runtime& rt, const Value& value) {
  if (value.isString()) return value;
  if (value.isUndefined()) return Value::ofText("");
  return repr(rt, value);
}

Value repr(Runtime& rt, const Value& value) {
  TextBuffer out(rt);
  put(rt, out, value);
  return out.text();
}

// The shortest digits that read back as the same number, in Python's layout.
std::string floatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const auto count = static_cast<int>(digits.size());
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(".").append(digits, 1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  if (count <= exponent + 1)
    return out.append(digits).append(static_cast<size_t>(exponent + 1 - count), '0').append(".0");
  const auto whole = static_cast<size_t>(exponent + 1);
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

}  // namespace chorus::tmpl
