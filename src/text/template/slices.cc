// Evaluates object[start:stop:step].
#include <algorithm>

#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

using Flavor = Sequence::Flavor;

// Positions from, from + stride, ... before `to`; all of them are within the object.
struct Bounds {
  int64_t from, to, stride;

  size_t count() const {
    if (stride > 0 ? from >= to : from <= to) return 0;
    // 128-bit arithmetic can't overflow here.
    const __int128 span = static_cast<__int128>(to) - from;
    return static_cast<size_t>((span + stride + (stride > 0 ? -1 : 1)) / stride);
  }
};

Bounds boundsOf(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto bound = [&](const Value& v, int64_t fallback, int64_t low, int64_t high) {
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
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
  return {bound(start, stride > 0 ? 0 : length - 1, low, high), bound(stop, stride > 0 ? length : -1, low, high),
          stride};
}

Value sliceText(Runtime& rt, std::string_view text, const Bounds& b) {
  const size_t count = b.count();
  if (count == 0) return Value::ofText("");
  if (b.stride == 1) {
    const size_t from = byteOffset(rt, text, static_cast<size_t>(b.from));
    return Value::ofText(text.substr(from, byteOffset(rt, text.substr(from), count)));
  }
  TextBuffer out(rt);
  if (b.stride > 0) {
    int64_t place = 0, wanted = b.from;
    for (Characters c(rt, text); wanted < b.to && c.next(); ++place) {
      if (place != wanted) continue;
      out.append(c.bytes());
      wanted = b.stride >= b.to - wanted ? b.to : wanted + b.stride;
    }
    return out.text();
  }
  // Go backwards from the end of the character at b.from.
  std::string_view rest = text.substr(0, byteOffset(rt, text, static_cast<size_t>(b.from) + 1));
  for (int64_t place = b.from, wanted = b.from; place > b.to && !rest.empty(); --place) {
    size_t begin = rest.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(rest[begin]) & 0xC0) == 0x80) --begin;
    rt.charge(4 * (rest.size() - begin));
    if (place == wanted) {
      out.append(rest.substr(begin));
      wanted = b.stride <= b.to - wanted ? b.to : wanted + b.stride;
    }
    rest = rest.substr(0, begin);
  }
  return out.text();
}

Value sliceRange(Runtime& rt, const Sequence& range, const Bounds& b) {
  const auto boundAt = [&](int64_t index) {
    int64_t value;
    if (__builtin_mul_overflow(index, range.step(), &value) || __builtin_add_overflow(range.start(), value, &value))
      raise("an integer doesn't fit 64 bits");
    return value;
  };
  int64_t step;
  if (__builtin_mul_overflow(range.step(), b.stride, &step)) raise("an integer doesn't fit 64 bits");
  return Sequence::makeRange(rt, boundAt(b.from), boundAt(b.to), step, b.count());
}
}  // namespace

Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  requireDefined(object);
  if (!object.isString() && !(object.isSequence() && object.sequence().flavor() <= Flavor::kRange)) {
    raise("'{}' object is not subscriptable by a slice", typeName(object));
  }
  const Bounds b = boundsOf(start, stop, step, lengthOf(rt, object));
  if (object.isString()) return sliceText(rt, object.string(), b);
  const Sequence& sequence = object.sequence();
  if (sequence.flavor() == Flavor::kRange) return sliceRange(rt, sequence, b);
  const size_t count = b.count();
  if (b.stride == 1) {
    return Sequence::make(
        rt, sequence.flavor(),
        count == 0 ? std::span<const Value>() : sequence.items().subspan(static_cast<size_t>(b.from), count));
  }
  const std::span<Value> picked = rt.newValues(count);
  for (size_t i = 0; i < count; ++i)
    picked[i] = sequence.items()[static_cast<size_t>(b.from + static_cast<int64_t>(i) * b.stride)];
  return Sequence::make(rt, sequence.flavor(), picked);
}

}  // namespace chorus::tmpl
