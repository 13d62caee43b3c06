// Implements Python's "..." % arguments.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "text/template/text_scan.h"
#include "text/template/wide_integer.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

constexpr size_t kMostWidth = 999'999;
constexpr size_t kMostPrecision = 350;  // of a number; the smallest float begins with 323 zeros

bool isOneOf(std::string_view types, char type) { return types.find(type) != std::string_view::npos; }

// The flags, width and precision, which stand between the percent sign and the type.
struct Spec {
  bool left = false, plus = false, space = false, alternative = false, zero = false;
  size_t width = 0;
  std::optional<size_t> precision;
};

class Formatter {
 public:
  Formatter(Runtime& rt, std::string_view format, const Value& arguments)
      : rt_(rt), format_(format), arguments_(arguments), out_(rt) {
    tuple_ = arguments.isSequence() && arguments.sequence().flavor() == Sequence::Flavor::kTuple;
    values_ = tuple_ ? arguments.sequence().items() : std::span<const Value>(&arguments_, 1);
  }

  Value run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.append(format_.substr(at_, percent - at_));
      at_ = percent + 1;
      if (percent == format_.size()) break;
      field();
      rt_.charge(at_ - percent);  // keys, flags and numbers may have any length
    }
    // Python lets a value with subscripts be unused, because the format may have named it.
    const bool subscripts = arguments_.isDict() || arguments_.isUndefined() ||
                            (arguments_.isSequence() && arguments_.sequence().flavor() <= Sequence::Flavor::kRange);
    if (tuple_ ? next_ < values_.size() : next_ == 0 && !subscripts) {
      raise("not all arguments converted during string formatting");
    }
    return out_.text();
  }

 private:
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  // Formats one field, after its percent sign.
  void field() {
    const Value* value = nullptr;
    if (peek() == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) raise("incomplete format key");
      requireDefined(arguments_);
      if (!arguments_.isDict()) raise("format requires a mapping");
      value = arguments_.dict().find(rt_, Value::ofText(format_.substr(at_ + 1, close - at_ - 1)));
      if (value == nullptr) raise("the format uses a key that isn't in the mapping");
      at_ = close + 1;
    }
    const Spec spec = takeSpec();
    if (at_ >= format_.size()) raise("incomplete format");
    const char type = format_[at_++];
    if (type == '%') return out_.push('%');
    if (value == nullptr) {
      if (next_ >= values_.size()) raise("not enough arguments for format string");
      value = &values_[next_++];
    }
    put(spec, type, *value);
  }

  Spec takeSpec() {
    Spec spec;
    for (bool flag = true; flag; at_ += flag ? 1 : 0) {
      switch (peek()) {
        case '-':
          spec.left = true;
          break;
        case '+':
          spec.plus = true;
          break;
        case ' ':
          spec.space = true;
          break;
        case '#':
          spec.alternative = true;
          break;
        case '0':
          spec.zero = true;
          break;
        default:
          flag = false;
      }
    }
    spec.width = takeNumber();
    if (peek() == '.') {
      ++at_;
      spec.precision = takeNumber();
    }
    return spec;
  }

  size_t takeNumber() {
    size_t number = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      number = 10 * number + static_cast<size_t>(peek() - '0');
      if (number > kMostWidth) raise("a format width or precision of more than {}", kMostWidth);
    }
    return number;
  }

  void put(const Spec& spec, char type, const Value& value) {
    if (type == 's' || type == 'r') return putText(spec, type == 's' ? str(rt_, value) : repr(rt_, value));
    const bool integer = isOneOf("diuxXo", type);
    if (!integer && !isOneOf("fFeEgG", type)) {
      raise("unsupported format character '{}'", printable(std::string_view(&type, 1)));
    }
    requireDefined(value);
    if (spec.precision.value_or(0) > kMostPrecision) {
      raise("a format precision of {}; the limit for numbers is {}", *spec.precision, kMostPrecision);
    }
    const bool base_ten = isOneOf("diu", type);
    if (integer && (value.isInteger() || (base_ten && (value.isNumber() || value.isWideInteger())))) {
      return base_ten ? putDecimal(spec, value) : putInBase(spec, type, value.integer());
    }
    if (!integer && value.isNumber()) return putFloat(spec, type, value.number());
    raise("the format '%{}' doesn't fit {}", type, typeName(value));
  }

  void putText(const Spec& spec, const Value& value) {
    std::string_view text = value.string();
    if (spec.precision) text = text.substr(0, byteOffset(rt_, text, *spec.precision));
    const size_t have = spec.width > 0 ? countOf(rt_, text) : 0;
    const size_t pad = spec.width > have ? spec.width - have : 0;
    if (!spec.left) out_.append(pad, ' ');
    out_.append(text);
    if (spec.left) out_.append(pad, ' ');
  }

  void putDecimal(const Spec& spec, const Value& value) {
    if (value.isWideInteger()) return putInteger(spec, "", value.digits());
    if (value.isInteger()) return putInteger(spec, "", fmt::format("{}", value.integer()));
    const double number = value.number();
    if (!std::isfinite(number)) raise("cannot convert float {} to integer", std::isnan(number) ? "NaN" : "infinity");
    const std::string wide = wideDigitsOf(rt_, number);
    putInteger(spec, "", wide.empty() ? fmt::format("{}", static_cast<int64_t>(number)) : wide);
  }

  void putInBase(const Spec& spec, char type, int64_t number) {
    const std::string digits = type == 'o'   ? fmt::format("{:o}", number)
                               : type == 'x' ? fmt::format("{:x}", number)
                                             : fmt::format("{:X}", number);
    const char prefix[] = {'0', type};
    putInteger(spec, spec.alternative ? std::string_view(prefix, 2) : "", digits);
  }

  // digits: may begin with a minus sign. The precision is the least number of digits.
  void putInteger(const Spec& spec, std::string_view prefix, std::string_view digits) {
    const bool negative = digits.starts_with('-');
    if (negative) digits.remove_prefix(1);
    const size_t least = spec.precision.value_or(0);
    putNumber(spec, negative, prefix, least > digits.size() ? least - digits.size() : 0, digits);
  }

  void putFloat(const Spec& spec, char type, double number) {
    char buffer[768];  // 309 digits, a point and kMostPrecision digits fit
    const size_t precision = spec.precision.value_or(6);
    // snprintf takes about 5 ns for each digit.
    rt_.charge(8 * (precision + 320));
    const std::string format = fmt::format("%{}.*{}", spec.alternative ? "#" : "", type);
    const int size =
        std::snprintf(buffer, sizeof buffer, format.c_str(), static_cast<int>(precision), std::fabs(number));
    if (size < 0 || static_cast<size_t>(size) >= sizeof buffer) raise("a formatted number is too long");
    const bool negative = std::signbit(number) && !std::isnan(number);
    putNumber(spec, negative, "", 0, std::string_view(buffer, static_cast<size_t>(size)));
  }

  // Writes sign, prefix, zeros and digits, padded to the width by zeros before the digits or spaces around the number.
  void putNumber(const Spec& spec, bool negative, std::string_view prefix, size_t zeros, std::string_view digits) {
    const std::string_view sign = negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
    const size_t have = sign.size() + prefix.size() + zeros + digits.size();
    const size_t pad = spec.width > have ? spec.width - have : 0;
    if (!spec.left && !spec.zero) out_.append(pad, ' ');
    out_.append(sign);
    out_.append(prefix);
    out_.append(zeros + (!spec.left && spec.zero ? pad : 0), '0');
    out_.append(digits);
    if (spec.left) out_.append(pad, ' ');
  }

  Runtime& rt_;
  std::string_view format_;
  Value arguments_;
  TextBuffer out_;
  bool tuple_;
  std::span<const Value> values_;
  size_t at_ = 0, next_ = 0;
};
}  // namespace

Value percentFormat(Runtime& rt, std::string_view format, const Value& arguments) {
  return Formatter(rt, format, arguments).run();
}

}  // namespace chorus::tmpl
