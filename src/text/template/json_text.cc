#include <algorithm>
#include <cmath>

#include "text/template/runtime.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

class Writer {
 public:
  Writer(Runtime& rt, const Value& indent, const Value& separators, bool ascii, bool sort_keys)
      : rt_(rt), ascii_(ascii), sort_keys_(sort_keys) {
    requireDefined(indent);
    if (indent.isInteger()) {
      pretty_ = true;
      unit_.assign(static_cast<size_t>(std::clamp<int64_t>(indent.integer(), 0, 64)), ' ');
    } else if (indent.isString()) {
      pretty_ = true;
      unit_ = indent.string();
    } else if (!indent.isNone()) {
      raise("tojson: indent must be an integer, a string or none");
    }
    item_separator_ = pretty_ ? "," : ", ";
    if (separators.isNone()) return;
    if (!separators.isSequence() || separators.sequence().items.size() != 2 ||
        !separators.sequence().items[0].isString() || !separators.sequence().items[1].isString()) {
      raise("tojson: separators must be two strings");
    }
    item_separator_ = separators.sequence().items[0].string();
    key_separator_ = separators.sequence().items[1].string();
  }

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    rt_.charge(text.size());
    out_ += text;
  }
  void newLine(int level) {
    if (!pretty_) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(unit_);
  }

  void writeText(const std::string& text) {
    put("\"");
    std::string escaped;
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = decodeUtf8(std::string_view(text).substr(i));
      const uint32_t c = step.code;
      constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
      const size_t k = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
      if (k != std::string_view::npos)
        escaped += '\\', escaped += kTo[k];
      else if (c < 0x20 || (ascii_ && c > 0x7E && c < 0x10000))
        escaped += fmt::format("\\u{:04x}", c);
      else if (ascii_ && c >= 0x10000) {
        escaped += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        escaped += text.substr(i, static_cast<size_t>(step.length));
      }
      i += static_cast<size_t>(step.length);
    }
    put(escaped);
    put("\"");
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return floatRepr(value);
  }

  static std::string scalar(const Value& v) {
    if (v.isNone()) return "null";
    if (v.kind() == Kind::kBool) return v.boolean() ? "true" : "false";
    return v.isInteger() ? std::to_string(v.integer()) : number(v.number());
  }

  void write(const Value& v, int level) {
    rt_.step();
    switch (v.kind()) {
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        return put(scalar(v));
      case Kind::kString:
        return writeText(v.string());
      case Kind::kSequence:
        if (v.sequence().flavor <= Sequence::Flavor::kTuple) return writeList(v.sequence().items, level);
        break;
      case Kind::kDict:
        return writeDict(*v.dict(), level);
      default:
        break;
    }
    raise("Object of type {} is not JSON serializable", typeName(v));
  }

  void writeList(const std::vector<Value>& items, int level) {
    if (items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(item_separator_);
      newLine(level + 1);
      write(items[i], level + 1);
    }
    newLine(level);
    put("]");
  }

  void writeDict(const Dict& dict, int level) {
    if (dict.entries.empty()) return put("{}");
    auto entries = dict.entries;
    if (sort_keys_) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return lessThan(a.first, b.first); });
    }
    put("{");
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) put(item_separator_);
      first = false;
      newLine(level + 1);
      if (key.isString())
        writeText(key.string());
      else if (key.isNone() || key.isNumber())
        put("\"" + scalar(key) + "\"");
      else
        raise("keys must be str, int, float, bool or None, not {}", typeName(key));
      put(key_separator_);
      write(value, level + 1);
    }
    newLine(level);
    put("}");
  }

  Runtime& rt_;
  bool ascii_, sort_keys_;
  bool pretty_ = false;
  std::string unit_, item_separator_, key_separator_ = ": ";
  std::string out_;
};
}  // namespace

std::string toJson(Runtime& rt, const Value& value, const Value& indent, const Value& separators, bool ascii,
                   bool sort_keys) {
  return Writer(rt, indent, separators, ascii, sort_keys).run(value);
}

}  // namespace chorus::tmpl
