#include <algorithm>
#include <cmath>

#include "text/template/text_scan.h"
#include "text/template/wide_integer.h"

namespace chorus::tmpl {
namespace {

[[noreturn]] void unsupported(Op op, const Value& a, const Value& b) {
  raise("unsupported operand type(s) for {}: '{}' and '{}'", op == Op::kPow ? "** or pow()" : opName(op), typeName(a),
        typeName(b));
}
[[noreturn]] void overflow() { raise("the result is an integer that doesn't fit 64 bits"); }

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

int64_t floorModulo(int64_t a, int64_t b) {
  if (b == 0) raise("integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(double a, double b) {
  if (a == 0 && b < 0) raise("0.0 cannot be raised to a negative power");
  const bool finite = std::isfinite(a) && std::isfinite(b);
  if (finite && a < 0 && b != std::floor(b)) raise("the power of a negative number is not a real number");
  const double out = std::pow(a, b);
  if (finite && std::isinf(out)) raise("the power is too large for a float");
  return Value(out);
}

Value integerOperation(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if (op == Op::kAdd)
    over = __builtin_add_overflow(a, b, &out);
  else if (op == Op::kSub)
    over = __builtin_sub_overflow(a, b, &out);
  else if (op == Op::kMul)
    over = __builtin_mul_overflow(a, b, &out);
  else if (op == Op::kFloorDiv)
    out = floorDivide(a, b);
  else if (op == Op::kMod)
    out = floorModulo(a, b);
  else if (op == Op::kDiv) {
    if (b == 0) raise("division by zero");
    return Value(static_cast<double>(a) / static_cast<double>(b));
  } else {  // **
    if (b < 0) return power(static_cast<double>(a), static_cast<double>(b));
    if (a == -1 || a == 0 || a == 1) return Value(b == 0 ? int64_t{1} : b % 2 == 0 ? a * a : a);
    out = 1;
    for (int64_t i = 0; i < b && !over; ++i) over = __builtin_mul_overflow(out, a, &out);
  }
  if (over) overflow();
  return Value(out);
}

Value floatOperation(Op op, double a, double b) {
  if (op == Op::kAdd) return Value(a + b);
  if (op == Op::kSub) return Value(a - b);
  if (op == Op::kMul) return Value(a * b);
  if (op == Op::kPow) return power(a, b);
  if (b == 0) raise("float division by zero");
  if (op == Op::kDiv) return Value(a / b);
  double mod = std::fmod(a, b);
  if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
  if (op == Op::kMod) return Value(mod == 0 ? std::copysign(0.0, b) : mod);
  const double quotient = std::round((a - mod) / b);
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : quotient);
}

Value repeat(Runtime& rt, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size = value.isString() ? value.string().size() : value.sequence().size();
  if (times == 1) return value;
  size_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) rt.memory().take(SIZE_MAX);
  if (value.isString()) {
    TextBuffer out(rt);
    out.reserve(total);
    if (size == 1) {
      out.append(times, value.string()[0]);
    } else {
      for (size_t i = 0; size > 0 && i < times; ++i) out.append(value.string());
    }
    return out.text();
  }
  ValueBuffer out(rt);
  out.reserve(total);
  for (size_t i = 0; size > 0 && i < times; ++i) out.append(value.sequence().items());
  return Sequence::make(rt, value.sequence().flavor(), out.finish());
}

bool isListOrTuple(const Value& v) { return v.isSequence() && v.sequence().isListOrTuple(); }
}  // namespace

std::string_view opName(Op op) {
  constexpr std::string_view kNames[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kNames[static_cast<size_t>(op)];
}

Value binaryOperation(Runtime& rt, Op op, const Value& a, const Value& b) {
  requireDefined(a);
  if (op == Op::kMod && a.isString()) return percentFormat(rt, a.string(), b);
  requireDefined(b);
  if (a.isNumber() && b.isNumber()) {
    return a.isInteger() && b.isInteger() ? integerOperation(op, a.integer(), b.integer())
                                          : floatOperation(op, a.number(), b.number());
  }
  if (op == Op::kAdd && a.isString() && b.isString()) return rt.concat(a.string(), b.string());
  if (op == Op::kAdd && isListOrTuple(a) && isListOrTuple(b) && a.sequence().flavor() == b.sequence().flavor()) {
    const auto x = a.sequence().items(), y = b.sequence().items();
    const std::span<Value> items = rt.newValues(x.size() + y.size());
    std::copy(y.begin(), y.end(), std::copy(x.begin(), x.end(), items.begin()));
    return Sequence::make(rt, a.sequence().flavor(), items);
  }
  if (op == Op::kMul) {
    if ((a.isString() || isListOrTuple(a)) && b.isInteger()) return repeat(rt, a, b.integer());
    if ((b.isString() || isListOrTuple(b)) && a.isInteger()) return repeat(rt, b, a.integer());
  }
  if (op == Op::kAdd && a.isString()) raise("can only concatenate str (not \"{}\") to str", typeName(b));
  unsupported(op, a, b);
}

Value unaryOperation(Runtime& rt, Op op, const Value& v) {
  requireDefined(v);
  if (v.isWideInteger()) {
    if (op == Op::kAdd) return v;
    const std::string_view digits = v.digits();
    return integerOfDigits(rt, digits.starts_with('-') ? digits.substr(1) : rt.concat("-", digits).string());
  }
  if (!v.isNumber()) raise("bad operand type for unary {}: '{}'", opName(op), typeName(v));
  if (op == Op::kAdd) return v.isInteger() ? Value(v.integer()) : v;
  if (!v.isInteger()) return Value(-v.number());
  int64_t out;
  if (__builtin_sub_overflow(int64_t{0}, v.integer(), &out)) return Value::wideInteger("9223372036854775808");
  return Value(out);
}

bool compareValues(Runtime& rt, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kIn:
      return contains(rt, b, a);
    case Op::kNotIn:
      return !contains(rt, b, a);
    case Op::kEq:
      return equals(rt, a, b);
    case Op::kNe:
      return !equals(rt, a, b);
    case Op::kLt:
      return lessThan(rt, a, b);
    case Op::kGt:
      return lessThan(rt, b, a);
    default:
      break;
  }
  const bool nan = a.isNumber() && b.isNumber() && (std::isnan(a.number()) || std::isnan(b.number()));
  return !nan && (op == Op::kLe ? !lessThan(rt, b, a) : !lessThan(rt, a, b));
}

}  // namespace chorus::tmpl
