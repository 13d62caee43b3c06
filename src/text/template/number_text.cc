#include "text/template/number_text.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "text/template/text_scan.h"
#include "text/template/wide_integer.h"

namespace chorus::tmpl {
namespace {

bool isAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
}  // namespace

std::optional<Value> parseInteger(Runtime& rt, std::string_view raw, int base) {
  const std::string_view text = stripped(rt, raw, nullptr, true, true);
  TextBuffer digits(rt);  // without the underscores between digits
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && isAlnum(text[i - 1]) && isAlnum(text[i + 1])) continue;
    if (!isAlnum(text[i]) && !(i == 0 && (text[i] == '-' || text[i] == '+'))) return std::nullopt;
    if (base == 10 && std::isalpha(static_cast<unsigned char>(text[i]))) return std::nullopt;
    digits.push(text[i]);
  }
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  if (digits.size() == (has_sign ? 1 : 0)) return std::nullopt;
  if (base == 10) return integerOfDigits(rt, digits.view());
  digits.push('\0');
  rt.charge(4 * digits.size());
  errno = 0;
  char* end = nullptr;
  const long long number = std::strtoll(digits.items().data(), &end, base);
  if (errno == ERANGE) raise("an integer of base {} doesn't fit 64 bits", base);
  return *end == '\0' ? std::optional(Value(int64_t{number})) : std::nullopt;
}

std::optional<double> parseFloat(Runtime& rt, std::string_view raw) {
  const std::string_view text = stripped(rt, raw, nullptr, true, true);
  std::string word;
  if (text.size() < 16) {
    for (const char c : text) word.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  if (!word.empty() && (word[0] == '+' || word[0] == '-')) word.erase(0, 1);
  const bool special = word == "inf" || word == "infinity" || word == "nan";
  TextBuffer copy(rt);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool sign = i == 0 && (text[0] == '+' || text[0] == '-');
    const char lower = static_cast<char>(text[i] | 0x20);
    const bool digit = (text[i] >= '0' && text[i] <= '9') || text[i] == '.' || lower == 'e';
    if (!special && !sign && !digit && text[i] != '+' && text[i] != '-') return std::nullopt;
    copy.push(text[i]);
  }
  if (copy.empty()) return std::nullopt;
  copy.push('\0');
  rt.charge(8 * copy.size());
  char* end = nullptr;
  const double number = std::strtod(copy.items().data(), &end);
  return *end == '\0' && end != copy.items().data() ? std::optional(number) : std::nullopt;
}

}  // namespace chorus::tmpl
