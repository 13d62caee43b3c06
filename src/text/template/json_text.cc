#include <algorithm>
#include <cmath>
#include <string>

#include "text/template/float_text.h"
#include "text/template/text_scan.h"

namespace chorus::tmpl {
namespace {

class Writer {
 public:
  Writer(Runtime& rt, const Value& indent, const Value& separators, bool ascii, bool sort_keys)
      : rt_(rt), ascii_(ascii), sort_keys_(sort_keys), out_(rt) {
    requireDefined(indent);
    if (indent.isInteger()) {
      constexpr std::string_view kSpaces = "                                                                ";
      pretty_ = true;
      unit_ = kSpaces.substr(0, static_cast<size_t>(std::clamp<int64_t>(indent.integer(), 0, 64)));
    } else if (indent.isString()) {
      pretty_ = true;
      unit_ = indent.string();
    } else if (!indent.isNone()) {
      raise("tojson: indent must be an integer, a string or none");
    }
    item_separator_ = pretty_ ? "," : ", ";
    if (separators.isNone()) return;
    if (!separators.isSequence() || separators.sequence().size() != 2 || !separators.sequence().at(0).isString() ||
        !separators.sequence().at(1).isString()) {
      raise("tojson: separators must be two strings");
    }
    item_separator_ = separators.sequence().at(0).string();
    key_separator_ = separators.sequence().at(1).string();
  }

  Value run(const Value& value) {
    write(value, 0);
    return out_.text();
  }

 private:
  void newLine(int level) {
    if (!pretty_) return;
    out_.push('\n');
    for (int i = 0; i < level && !unit_.empty(); ++i) out_.append(unit_);
  }

  void writeText(std::string_view text) {
    out_.push('"');
    for (Characters c(rt_, text); c.next();) writeCharacter(c.code(), c.bytes());
    out_.push('"');
  }

  void writeCharacter(uint32_t c, std::string_view bytes) {
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    const size_t k = c < 0x20 || c == '"' || c == '\\' ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (k != std::string_view::npos) {
      out_.push('\\');
      out_.push(kTo[k]);
    } else if (c < 0x20 || (ascii_ && c > 0x7E && c < 0x10000)) {
      out_.append(fmt::format("\\u{:04x}", c));
    } else if (ascii_ && c >= 0x10000) {
      out_.append(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF)));
    } else {
      out_.append(bytes);
    }
  }

  static std::string scalar(const Value& v) {
    if (v.isNone()) return "null";
    if (v.kind() == Kind::kBool) return v.boolean() ? "true" : "false";
    if (v.isInteger()) return std::to_string(v.integer());
    if (std::isnan(v.number())) return "NaN";
    if (std::isinf(v.number())) return v.number() < 0 ? "-Infinity" : "Infinity";
    return floatRepr(v.number());
  }

  [[gnu::noinline]] void writeScalar(const Value& v) {
    if (v.isWideInteger()) return out_.append(v.digits());
    out_.append(scalar(v));
  }

  void write(const Value& v, int level) {
    rt_.charge(sizeof(Value));
    switch (v.kind()) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kWideInt:
      case Kind::kFloat:
        return writeScalar(v);
      case Kind::kString:
        return writeText(v.string());
      case Kind::kSequence:
        rt_.checkStack();
        if (v.sequence().isListOrTuple()) return writeList(v.sequence().items(), level);
        break;
      case Kind::kDict:
        rt_.checkStack();
        return writeDict(v.dict(), level);
      default:
        break;
    }
    raise("Object of type {} is not JSON serializable", typeName(v));
  }

  void writeList(std::span<const Value> items, int level) {
    if (items.empty()) return out_.append("[]");
    out_.push('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(item_separator_);
      newLine(level + 1);
      write(items[i], level + 1);
    }
    newLine(level);
    out_.push(']');
  }

  std::span<const Dict::Entry> sorted(std::span<const Dict::Entry> entries) {
    rt_.charge(entries.size_bytes());
    const std::span<Dict::Entry> copy = rt_.objects().copy(entries);
    sortPairs(rt_, copy, false);
    return copy;
  }

  [[gnu::noinline]] void writeKey(const Value& key) {
    if (key.isString())
      writeText(key.string());
    else if (key.isNone() || key.isNumber())
      out_.append(fmt::format("\"{}\"", scalar(key)));
    else if (key.isWideInteger())
      out_.append(fmt::format("\"{}\"", key.digits()));
    else
      raise("keys must be str, int, float, bool or None, not {}", typeName(key));
  }

  void writeDict(const Dict& dict, int level) {
    if (dict.size() == 0) return out_.append("{}");
    const std::span<const Dict::Entry> entries = sort_keys_ ? sorted(dict.entries()) : dict.entries();
    out_.push('{');
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) out_.append(item_separator_);
      first = false;
      newLine(level + 1);
      writeKey(key);
      out_.append(key_separator_);
      write(value, level + 1);
    }
    newLine(level);
    out_.push('}');
  }

  Runtime& rt_;
  bool ascii_, sort_keys_;
  bool pretty_ = false;
  std::string_view unit_, item_separator_, key_separator_ = ": ";
  TextBuffer out_;
};
}  // namespace

Value toJson(Runtime& rt, const Value& value, const Value& indent, const Value& separators, bool ascii,
             bool sort_keys) {
  return Writer(rt, indent, separators, ascii, sort_keys).run(value);
}

}  // namespace chorus::tmpl
