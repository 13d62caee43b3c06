// Implements Python's "..." % arguments.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "text/template/text_scan.h"
#include "text/unicode.h"

namespace chorus::tmpl {
namespace {

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
      if (percent < format_.size()) field();
    }
    const bool list = arguments_.isSequence() && arguments_.sequence().isListOrTuple();
    if ((next_ < values_.size() && tuple_) || (!tuple_ && next_ == 0 && !arguments_.isDict() && !list)) {
      raise("not all arguments converted during string formatting");
    }
    return out_.text();
  }

 private:
  struct Spec {
    std::string text;  // flags, width and precision
    bool left() const { return text.find('-') != std::string::npos; }
    bool alternative() const { return text.find('#') != std::string::npos; }
    size_t widthAt() const { return text.find_first_of("123456789"); }
    size_t dot() const { return text.find('.'); }
    size_t width() const {
      return widthAt() == std::string::npos || widthAt() > dot() ? 0
                                                                 : std::strtoul(text.c_str() + widthAt(), nullptr, 10);
    }
  };

  // Formats one field, after its percent sign.
  void field() {
    const Value* value = nullptr;
    if (at_ < format_.size() && format_[at_] == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) raise("incomplete format key");
      if (!arguments_.isDict()) raise("format requires a mapping");
      value = arguments_.dict().find(rt_, Value::ofText(format_.substr(at_ + 1, close - at_ - 1)));
      if (value == nullptr) raise("the format uses a key that isn't in the mapping");
      at_ = close + 1;
    }
    Spec spec;
    while (at_ < format_.size() && std::string_view("-+ #0123456789.").find(format_[at_]) != std::string_view::npos) {
      spec.text += format_[at_++];
      if (spec.text.size() > 7) raise("a format width of more than 6 digits");
    }
    if (at_ >= format_.size()) raise("incomplete format");
    const char type = format_[at_++];
    if (type == '%') return out_.push('%');
    if (value == nullptr) {
      if (next_ >= values_.size()) raise("not enough arguments for format string");
      value = &values_[next_++];
    }
    requireDefined(*value);
    put(spec, type, *value);
  }

  void put(const Spec& spec, char type, const Value& value) {
    if (type == 's' || type == 'r') return putText(spec, type == 's' ? str(rt_, value) : repr(rt_, value));
    const bool number = value.isNumber() && !spec.alternative();
    if (number && std::string_view("dixXo").find(type) != std::string_view::npos) return putInteger(spec, type, value);
    if (number && std::string_view("feEgG").find(type) != std::string_view::npos) {
      if (spec.text.size() > 5) raise("a format width of more than 5 characters");
      return print(fmt::format("%{}{}", spec.text, type), value.number());
    }
    raise("the format '%{}' doesn't fit {}", printable(std::string_view(&type, 1)), typeName(value));
  }

  void putText(const Spec& spec, const Value& value) {
    std::string_view text = value.string();
    if (spec.dot() != std::string::npos) {
      text = text.substr(0, byteOffset(rt_, text, std::strtoul(spec.text.c_str() + spec.dot() + 1, nullptr, 10)));
    }
    const size_t want = spec.width(), have = want > 0 ? countOf(rt_, text) : 0;
    const size_t pad = want > have ? want - have : 0;
    if (!spec.left()) out_.append(pad, ' ');
    out_.append(text);
    if (spec.left()) out_.append(pad, ' ');
  }

  void putInteger(const Spec& spec, char type, const Value& value) {
    if (!value.isInteger() && !(value.number() >= -0x1p63 && value.number() < 0x1p63))
      raise("the number for '%{}' doesn't fit 64 bits", type);
    const int64_t number = value.isInteger() ? value.integer() : static_cast<int64_t>(value.number());
    if (type != 'd' && type != 'i' && number < 0) raise("negative numbers in a %{} format are not supported", type);
    if (spec.widthAt() != std::string::npos && spec.text.size() > 4) raise("a format width of more than 3 digits");
    print(fmt::format("%{}ll{}", spec.text, type == 'i' ? 'd' : type), static_cast<long long>(number));
  }

  template <typename Number>
  void print(const std::string& format, Number number) {
    char buffer[2048];
    rt_.charge(sizeof buffer);
    std::snprintf(buffer, sizeof buffer, format.c_str(), number);
    out_.append(std::string_view(buffer));
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
