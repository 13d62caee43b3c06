#include "text/template/value.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

int64_t heavier(int64_t weight, const Value& item) {
  if (weight + item.weight() > kMaxValueWeight) raise("a value is made of more than {} parts", kMaxValueWeight);
  return weight + item.weight();
}

int deeper(int depth) {
  if (depth + 1 > kMaxValueDepth) raise("values nest deeper than {} levels", kMaxValueDepth);
  return depth + 1;
}

bool isPrintable(uint32_t code) {
  if (code == ' ') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

std::string stringRepr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decodeUtf8(std::string_view(text).substr(i));
    const auto length = static_cast<size_t>(step.length);
    const uint32_t code = step.code;
    if (code == static_cast<uint32_t>(quote) || code == '\\')
      out += '\\', out += static_cast<char>(code);
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (isPrintable(code))
      out += text.substr(i, length);
    else if (code < 0x100)
      out += fmt::format("\\x{:02x}", code);
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\U{:08x}", code);
    i += length;
  }
  return out + quote;
}

std::string joined(const std::vector<Value>& items) {
  std::string out;
  for (const Value& item : items) {
    if (!out.empty()) out += ", ";
    out += repr(item);
  }
  return out;
}

std::string sequenceRepr(const Sequence& s) {
  using Flavor = Sequence::Flavor;
  switch (s.flavor) {
    case Flavor::kList:
      return "[" + joined(s.items) + "]";
    case Flavor::kTuple:
      return "(" + joined(s.items) + (s.items.size() == 1 ? ",)" : ")");
    case Flavor::kRange:
      return s.step == 1 ? fmt::format("range({}, {})", s.start, s.stop)
                         : fmt::format("range({}, {}, {})", s.start, s.stop, s.step);
    case Flavor::kKeys:
      return "dict_keys([" + joined(s.items) + "])";
    case Flavor::kValues:
      return "dict_values([" + joined(s.items) + "])";
    case Flavor::kItems:
      return "dict_items([" + joined(s.items) + "])";
    case Flavor::kGenerator:
      return "<generator object>";
  }
  return {};
}

std::string dictRepr(const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries) {
    if (out.size() > 1) out += ", ";
    out += repr(key) + ": " + repr(value);
  }
  return out + "}";
}
}  // namespace

Value::Value(std::shared_ptr<Dict> v) : data_(std::move(v)) {}

Kind Value::kind() const {
  switch (data_.index()) {
    case 0:
      return Kind::kNone;
    case 1:
      return Kind::kBool;
    case 2:
      return Kind::kInt;
    case 3:
      return Kind::kFloat;
    case 4:
      return Kind::kString;
    case 5:
      return Kind::kUndefined;
    case 6:
      return Kind::kSequence;
    case 7:
      return std::get<std::shared_ptr<Dict>>(data_)->is_namespace ? Kind::kNamespace : Kind::kDict;
    case 8:
      return Kind::kFunction;
    default:
      return Kind::kLoop;
  }
}

const void* Value::identity() const {
  return std::visit(
      [](const auto& v) -> const void* {
        if constexpr (requires { v.get(); })
          return v.get();
        else
          return nullptr;
      },
      data_);
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kSequence:
      return sequence().depth;
    case Kind::kDict:
      return dict()->depth;
    case Kind::kFunction:
      return function()->depth;
    case Kind::kLoop:
      return loop()->depth;
    default:
      return 0;
  }
}

int64_t Value::weight() const {
  switch (kind()) {
    case Kind::kString:
      return 1 + static_cast<int64_t>(string().size() / 16);
    case Kind::kSequence:
      return sequence().weight;
    case Kind::kDict:
      return dict()->weight;
    default:
      return 1;
  }
}

const Value* Dict::find(const Value& key) const {
  const auto it = index.find(hashKey(key));
  return it == index.end() ? nullptr : &entries[it->second].second;
}
const Value* Dict::findText(std::string_view key) const {
  const auto it = index.find("s" + std::string(key));
  return it == index.end() ? nullptr : &entries[it->second].second;
}
void Dict::set(const Value& key, Value value) {
  if (!is_namespace) {
    depth = std::max(depth, deeper(std::max(key.depth(), value.depth())));
    weight = heavier(heavier(weight, key), value);
  }
  const auto [it, added] = index.emplace(hashKey(key), entries.size());
  if (added)
    entries.emplace_back(key, std::move(value));
  else
    entries[it->second].second = std::move(value);
}

Value makeSequence(Sequence::Flavor flavor, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) {
    sequence->depth = std::max(sequence->depth, deeper(item.depth()));
    sequence->weight = heavier(sequence->weight, item);
  }
  sequence->flavor = flavor;
  sequence->items = std::move(items);
  return Value(std::move(sequence));
}

Value makeFunction(std::string name, std::function<Value(Runtime&, CallArgs&)> call, int depth) {
  auto function = std::make_shared<Function>();
  function->name = std::move(name);
  function->call = std::move(call);
  function->depth = deeper(depth);
  return Value(std::move(function));
}

Value fromJson(const OrderedJson& json) {
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) raise("the integer {} doesn't fit 64 bits", json.get<uint64_t>());
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return Value(toValidUtf8(json.get_ref<const std::string&>()));
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(fromJson(item));
      return makeList(std::move(items));
    }
    case OrderedJson::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) dict->set(Value(toValidUtf8(key)), fromJson(value));
      return Value(std::move(dict));
    }
    default:
      return Value();
  }
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return v.boolean();
    case Kind::kInt:
      return v.integer() != 0;
    case Kind::kFloat:
      return v.number() != 0;
    case Kind::kString:
      return !v.string().empty();
    case Kind::kSequence:
      return v.sequence().flavor == Sequence::Flavor::kGenerator || !v.sequence().items.empty();
    case Kind::kDict:
      return !v.dict()->entries.empty();
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kLoop:
      return true;
  }
  return true;
}

bool equals(const Value& a, const Value& b) {
  if (a.isNumber() && b.isNumber()) {
    return a.isInteger() && b.isInteger() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.string() == b.string();
    case Kind::kSequence: {
      const Sequence &x = a.sequence(), &y = b.sequence();
      if (&x == &y) return true;
      using Flavor = Sequence::Flavor;
      if (x.flavor != y.flavor || x.flavor == Flavor::kGenerator || x.flavor == Flavor::kValues) return false;
      return std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equals);
    }
    case Kind::kDict: {
      const Dict &x = *a.dict(), &y = *b.dict();
      return x.entries.size() == y.entries.size() &&
             std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
               const Value* other = y.find(entry.first);
               return other != nullptr && equals(entry.second, *other);
             });
    }
    default:
      return a.identity() == b.identity();
  }
}

bool lessThan(const Value& a, const Value& b) {
  requireDefined(a);
  requireDefined(b);
  if (a.isNumber() && b.isNumber()) {
    return a.isInteger() && b.isInteger() ? a.integer() < b.integer() : a.number() < b.number();
  }
  if (a.isString() && b.isString()) return a.string() < b.string();
  if (a.isSequence() && b.isSequence() && a.sequence().flavor == b.sequence().flavor &&
      a.sequence().flavor <= Sequence::Flavor::kTuple) {
    const auto &x = a.sequence().items, &y = b.sequence().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(x[i], y[i])) return lessThan(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  raise("'<' not supported between instances of '{}' and '{}'", typeName(a), typeName(b));
}

std::string hashKey(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "u";
    case Kind::kNone:
      return "n";
    case Kind::kBool:
    case Kind::kInt:
      return fmt::format("i{}", v.integer());
    case Kind::kFloat: {
      const double d = v.number();
      if (d == std::floor(d) && std::fabs(d) < 9e18) return fmt::format("i{}", static_cast<int64_t>(d));
      return fmt::format("f{}", d);
    }
    case Kind::kString:
      return "s" + v.string();
    case Kind::kSequence:
      if (v.sequence().flavor == Sequence::Flavor::kTuple) {
        std::string key = "t";
        for (const Value& item : v.sequence().items) {
          const std::string part = hashKey(item);
          key += fmt::format("{}:{}", part.size(), part);
        }
        return key;
      }
      [[fallthrough]];
    case Kind::kDict:
      raise("unhashable type: '{}'", typeName(v));
    default:
      return fmt::format("o{}", v.identity());
  }
}

std::string_view typeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kSequence: {
      constexpr std::string_view kNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                             "dict_values", "dict_items", "generator"};
      return kNames[static_cast<size_t>(v.sequence().flavor)];
    }
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "";
}

void requireDefined(const Value& value) {
  if (value.isUndefined()) raise("{}", value.hint());
}

std::string str(const Value& value) {
  if (value.isString()) return value.string();
  if (value.isUndefined()) return {};
  return repr(value);
}

std::string repr(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return v.boolean() ? "True" : "False";
    case Kind::kInt:
      return std::to_string(v.integer());
    case Kind::kFloat:
      return floatRepr(v.number());
    case Kind::kString:
      return stringRepr(v.string());
    case Kind::kSequence:
      return sequenceRepr(v.sequence());
    case Kind::kDict:
      return dictRepr(*v.dict());
    case Kind::kNamespace:
      return "<Namespace>";
    case Kind::kFunction:
      return "<function " + v.function()->name + ">";
    case Kind::kLoop:
      return fmt::format("<LoopContext {}/{}>", v.loop()->index + 1, v.loop()->items.size());
  }
  return {};
}

// The shortest digits that read back as the same number, laid out as Python does.
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
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

}  // namespace chorus::tmpl
