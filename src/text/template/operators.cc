#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/template/runtime.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  raise("unsupported operand type(s) for {}: '{}' and '{}'", op, typeName(a), typeName(b));
}
[[noreturn]] void overflow() { raise("an integer doesn't fit 64 bits"); }

int64_t floorDivide(int64_t a, int64_t b) {
  if (b == 0) raise("integer division or modulo by zero");
  if (b == -1) {
    int64_t out;
    if (__builtin_sub_overflow(int64_t{0}, a, &out)) overflow();
    return out;
  }
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Value integerOperation(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if (op == "+")
    over = __builtin_add_overflow(a, b, &out);
  else if (op == "-")
    over = __builtin_sub_overflow(a, b, &out);
  else if (op == "*")
    over = __builtin_mul_overflow(a, b, &out);
  else if (op == "//")
    out = floorDivide(a, b);
  else if (op == "%")
    out = b == -1 ? 0 : a - floorDivide(a, b) * b;
  else if (op == "/") {
    if (b == 0) raise("division by zero");
    return Value(static_cast<double>(a) / static_cast<double>(b));
  } else {  // **
    if (b < 0) {
      if (a == 0) raise("0.0 cannot be raised to a negative power");
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    if (a == -1 || a == 0 || a == 1) return Value(b == 0 ? int64_t{1} : b % 2 == 0 ? a * a : a);
    out = 1;
    for (int64_t i = 0; i < b && !over; ++i) over = __builtin_mul_overflow(out, a, &out);
  }
  if (over) overflow();
  return Value(out);
}

Value floatOperation(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) raise("float division by zero");
  if (op == "/") return Value(a / b);
  double mod = std::fmod(a, b);
  if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
  if (op == "%") return Value(mod == 0 ? std::copysign(0.0, b) : mod);
  return Value(std::round((a - mod) / b));
}

Value repeat(Runtime& rt, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size = value.isString() ? value.string().size() : value.sequence().items.size() * sizeof(Value);
  size_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) total = SIZE_MAX;
  rt.charge(total);
  if (value.isString()) {
    std::string out;
    out.reserve(total);
    for (size_t i = 0; size > 0 && i < times; ++i) out += value.string();
    return Value(std::move(out));
  }
  std::vector<Value> items;
  for (size_t i = 0; size > 0 && i < times; ++i) {
    items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  }
  return makeSequence(value.sequence().flavor, std::move(items));
}

bool isListOrTuple(const Value& v) { return v.isSequence() && v.sequence().flavor <= Sequence::Flavor::kTuple; }
}  // namespace

Value binaryOperation(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  requireDefined(a);
  if (op == "%" && a.isString()) return Value(percentFormat(rt, a.string(), b));
  requireDefined(b);
  if (a.isNumber() && b.isNumber()) {
    return a.isInteger() && b.isInteger() ? integerOperation(op, a.integer(), b.integer())
                                          : floatOperation(op, a.number(), b.number());
  }
  if (op == "+" && a.isString() && b.isString()) {
    rt.charge(a.string().size() + b.string().size());
    return Value(a.string() + b.string());
  }
  if (op == "+" && isListOrTuple(a) && isListOrTuple(b) && a.sequence().flavor == b.sequence().flavor) {
    std::vector<Value> items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    rt.charge(items.size() * sizeof(Value));
    return makeSequence(a.sequence().flavor, std::move(items));
  }
  if (op == "*") {
    if ((a.isString() || isListOrTuple(a)) && b.isInteger()) return repeat(rt, a, b.integer());
    if ((b.isString() || isListOrTuple(b)) && a.isInteger()) return repeat(rt, b, a.integer());
  }
  if (op == "+" && a.isString()) raise("can only concatenate str (not \"{}\") to str", typeName(b));
  unsupported(op == "**" ? "** or pow()" : op, a, b);
}

Value unaryOperation(std::string_view op, const Value& v) {
  requireDefined(v);
  if (!v.isNumber()) raise("bad operand type for unary {}: '{}'", op, typeName(v));
  if (op == "+") return v.isInteger() ? Value(v.integer()) : v;
  if (!v.isInteger()) return Value(-v.number());
  int64_t out;
  if (__builtin_sub_overflow(int64_t{0}, v.integer(), &out)) overflow();
  return Value(out);
}

bool compareValues(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (op == "in") return contains(rt, b, a);
  if (op == "not in") return !contains(rt, b, a);
  rt.step(a.weight() / 16);
  if (op == "==") return equals(a, b);
  if (op == "!=") return !equals(a, b);
  if (op == "<") return lessThan(a, b);
  if (op == ">") return lessThan(b, a);
  const bool nan = a.isNumber() && b.isNumber() && (std::isnan(a.number()) || std::isnan(b.number()));
  return !nan && (op == "<=" ? !lessThan(b, a) : !lessThan(a, b));
}

Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  requireDefined(object);
  if (!object.isString() && !(object.isSequence() && object.sequence().flavor <= Sequence::Flavor::kRange)) {
    raise("'{}' object is not subscriptable by a slice", typeName(object));
  }
  const auto bound = [](const Value& v, int64_t fallback, int64_t length, int64_t low, int64_t high) {
    if (v.isNone()) return fallback;
    requireDefined(v);
    if (!v.isInteger()) raise("slice indices must be integers or None");
    const int64_t i = v.integer();
    return std::clamp(i < 0 ? (i < -length ? low : i + length) : i, low, high);
  };
  requireDefined(step);
  if (!step.isNone() && !step.isInteger()) raise("slice indices must be integers or None");
  const int64_t stride = step.isNone() ? 1 : step.integer();
  if (stride == 0) raise("slice step cannot be zero");
  std::vector<Value> items = itemsOf(rt, object);
  const auto length = static_cast<int64_t>(items.size());
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
  const int64_t from = bound(start, stride > 0 ? 0 : length - 1, length, low, high);
  const int64_t to = bound(stop, stride > 0 ? length : -1, length, low, high);
  if (object.isSequence() && object.sequence().flavor == Sequence::Flavor::kRange) {
    const Sequence& range = object.sequence();
    auto part = std::make_shared<Sequence>();
    part->flavor = Sequence::Flavor::kRange;
    const auto boundAt = [&](int64_t index) {
      int64_t value;
      if (__builtin_mul_overflow(index, range.step, &value) || __builtin_add_overflow(range.start, value, &value))
        overflow();
      return value;
    };
    part->start = boundAt(from);
    part->stop = boundAt(to);
    if (__builtin_mul_overflow(range.step, stride, &part->step)) overflow();
    for (int64_t i = from; stride > 0 ? i < to : i > to;) {
      part->items.push_back(items[static_cast<size_t>(i)]);
      if (__builtin_add_overflow(i, stride, &i)) break;
    }
    return Value(std::move(part));
  }
  std::vector<Value> picked;
  if (stride > 0) {
    for (int64_t i = from; i < to; i = stride >= length ? to : i + stride)
      picked.push_back(items[static_cast<size_t>(i)]);
  } else {
    for (int64_t i = from; i > to; i = stride <= -length ? to : i + stride)
      picked.push_back(items[static_cast<size_t>(i)]);
  }
  if (!object.isString()) return makeSequence(object.sequence().flavor, std::move(picked));
  std::string text;
  for (const Value& c : picked) text += c.string();
  return Value(rt.charged(std::move(text)));
}

std::string percentFormat(Runtime& rt, const std::string& format, const Value& arguments) {
  const bool tuple = arguments.isSequence() && arguments.sequence().flavor == Sequence::Flavor::kTuple;
  const std::vector<Value> values = tuple ? arguments.sequence().items : std::vector<Value>{arguments};
  size_t next = 0;
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    std::string spec = "%";
    const Value* value = nullptr;
    if (++i < format.size() && format[i] == '(') {
      const size_t close = format.find(')', i);
      if (close == std::string::npos) raise("incomplete format key");
      if (!arguments.isDict()) raise("format requires a mapping");
      value = arguments.dict()->findText(std::string_view(format).substr(i + 1, close - i - 1));
      if (value == nullptr) raise("the format names a key that isn't there");
      i = close + 1;
    }
    while (i < format.size() && std::string_view("-+ #0123456789.").find(format[i]) != std::string_view::npos)
      spec += format[i++];
    if (spec.size() > 8) raise("a format width of more than 6 digits");
    if (i >= format.size()) raise("incomplete format");
    const char type = format[i];
    if (type == '%') {
      out.push_back('%');
      continue;
    }
    if (value == nullptr) {
      if (next >= values.size()) raise("not enough arguments for format string");
      value = &values[next++];
    }
    requireDefined(*value);
    const bool flags = spec.find_first_of("#") != std::string::npos;
    const auto width = [&](std::string text) {
      const bool left = spec.find('-') != std::string::npos;
      const size_t digits = spec.find_first_of("123456789"), dot = spec.find('.');
      if (dot != std::string::npos) {
        std::string cut;
        auto all = characters(text);
        const auto keep = static_cast<size_t>(std::strtoul(spec.c_str() + dot + 1, nullptr, 10));
        for (size_t k = 0; k < std::min(keep, all.size()); ++k) cut += all[k];
        text = cut;
      }
      const size_t want =
          digits == std::string::npos || digits > dot ? 0 : std::strtoul(spec.c_str() + digits, nullptr, 10);
      rt.charge(want);
      const size_t have = countCharacters(text);
      const std::string pad(want > have ? want - have : 0, ' ');
      return left ? text + pad : pad + text;
    };
    if (type == 's' || type == 'r') {
      out += width(type == 's' ? str(*value) : repr(*value));
    } else if ((type == 'd' || type == 'i' || type == 'x' || type == 'X' || type == 'o') && value->isNumber() &&
               !flags) {
      const int64_t number =
          value->isInteger() ? value->integer() : static_cast<int64_t>(std::clamp(value->number(), -9e18, 9e18));
      if (type != 'd' && type != 'i' && number < 0) raise("negative numbers in a %{} format are not supported", type);
      char buffer[2048];
      if (spec.find_first_of("123456789") != std::string::npos && spec.size() > 5)
        raise("a format width of more than 3 digits");
      const std::string full = spec + "ll" + (type == 'i' ? 'd' : type);
      std::snprintf(buffer, sizeof buffer, full.c_str(), static_cast<long long>(number));
      out += buffer;
    } else if (std::string_view("feEgG").find(type) != std::string_view::npos && value->isNumber() && !flags) {
      char buffer[2048];
      if (spec.size() > 6) raise("a format width of more than 5 characters");
      const std::string full = spec + type;
      std::snprintf(buffer, sizeof buffer, full.c_str(), value->number());
      out += buffer;
    } else {
      raise("the format '%{}' doesn't fit {}", printable(std::string_view(&type, 1)), typeName(*value));
    }
  }
  if (next < values.size() && tuple) raise("not all arguments converted during string formatting");
  if (!tuple && next == 0 && !arguments.isDict() && !isListOrTuple(arguments)) {
    raise("not all arguments converted during string formatting");
  }
  rt.charge(out.size());
  return out;
}

}  // namespace chorus::tmpl
