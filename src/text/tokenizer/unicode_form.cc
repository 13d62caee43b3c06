#include "text/tokenizer/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/library_characters.h"

namespace chorus {
namespace {

// A stretch of text is normalized separately. It ends before the first independent character after this many code
// points.
constexpr size_t kStretch = 1024;
// No character decomposes into more code points.
constexpr size_t kMostCodes = 32;

int combiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// True if nothing before the character can change because of it: it is no mark, no part of a Hangul syllable, and
// doesn't decompose into text that begins with one.
bool isIndependent(uint32_t code) {
  if (code < 0x80) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
  const bool hangul_part = code >= 0x1100 && code < 0x1200;
  const bool half_or_full_width = code >= 0xFF00 && code < 0xFFF0;
  const bool recent = code >= 0x16D40 && code < 0x16D80;  // vowel signs that are letters
  return !mark && !hangul_part && !half_or_full_width && !recent && category != UTF8PROC_CATEGORY_CN;
}

// The decomposed code points of a part of the text that is normalized separately.
class Stretch {
 public:
  Stretch(const UnicodeForm& form, EncodeWork& work)
      : options_(static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                                (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                                (form.compatibility ? UTF8PROC_COMPAT : 0))),
        work_(work) {}
  ~Stretch() { work_.scratch.giveBack(taken_); }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;

  size_t size() const { return codes_.size(); }

  void add(uint32_t code) {
    const size_t before = codes_.size();
    if (codes_.capacity() - before < kMostCodes) grow();
    codes_.resize(before + kMostCodes);
    int last_class = 0;
    // Composition happens later, over the whole stretch.
    const auto options = static_cast<utf8proc_option_t>((options_ & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), codes_.data() + before, kMostCodes,
                                               options, &last_class);
    if (count < 0 || static_cast<size_t>(count) > kMostCodes) {
      fail(ErrorCode::kInternal, "cannot decompose the character U+{:04X}", code);
    }
    codes_.resize(before + static_cast<size_t>(count));
  }

  void flush(ScratchText& out) {
    reorder();
    const auto size = utf8proc_normalize_utf32(codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size()), options_);
    if (size < 0) fail(ErrorCode::kInternal, "cannot normalize a text");
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) out.append(static_cast<uint32_t>(codes_[i]));
    codes_.clear();
  }

 private:
  void grow() {
    const size_t capacity = std::max(2 * kStretch, codes_.capacity() + codes_.capacity() / 2);
    work_.scratch.take(capacity * sizeof(utf8proc_int32_t));
    taken_ += capacity * sizeof(utf8proc_int32_t);
    const size_t before = codes_.capacity() * sizeof(utf8proc_int32_t);
    codes_.reserve(capacity);
    taken_ -= before;
    work_.scratch.giveBack(before);
  }

  // Sorts each run of marks by combining class (stable). utf8proc's own sort is quadratic in the length of the run.
  void reorder() {
    for (size_t begin = 0; begin < codes_.size();) {
      if (combiningClass(codes_[begin]) == 0) {
        ++begin;
        continue;
      }
      size_t end = begin;
      while (end < codes_.size() && combiningClass(codes_[end]) != 0) ++end;
      const size_t count = end - begin;
      work_.meter.charge(count * 8 * static_cast<size_t>(std::bit_width(count)));
      const auto first = codes_.begin() + static_cast<std::ptrdiff_t>(begin);
      std::stable_sort(first, first + static_cast<std::ptrdiff_t>(count),
                       [](auto a, auto b) { return combiningClass(a) < combiningClass(b); });
      begin = end;
    }
  }

  utf8proc_option_t options_;
  EncodeWork& work_;
  std::vector<utf8proc_int32_t> codes_;
  size_t taken_ = 0;
};
}  // namespace

void appendNormalForm(Utf8View text, const UnicodeForm& form, EncodeWork& work, ScratchText& out) {
  constexpr uint64_t kWorkPerCharacter = 32;
  const std::string_view bytes = text.bytes();
  const auto is_ascii = [&](size_t at) { return static_cast<unsigned char>(bytes[at]) < 0x80; };
  out.reserve(out.size() + text.size());
  Stretch stretch(form, work);
  for (size_t at = 0; at < text.size();) {
    // ASCII is unchanged in every normal form, but its last character may compose with the character after it.
    size_t end = at;
    while (end < text.size() && is_ascii(end)) ++end;
    if (end < text.size() && end > at) --end;
    if (end > at) {
      out.append(text.sub(at, end));
      at = end;
      if (at == text.size()) break;
    }
    while (at < text.size()) {
      const auto character = text.characterAt(at);
      if (library::isUnknownToNormalForms(character.code)) {
        // The library treats the character as independent, so nothing is reordered or composed across it.
        stretch.flush(out);
        out.append(character.code);
        work.meter.charge(kWorkPerCharacter);
        at += character.length;
        continue;
      }
      const bool plain = character.code < 0x80 && (at + 1 == text.size() || is_ascii(at + 1));
      if (stretch.size() > 0 && (plain || (stretch.size() >= kStretch && isIndependent(character.code)))) break;
      stretch.add(character.code);
      work.meter.charge(kWorkPerCharacter);
      at += character.length;
    }
    stretch.flush(out);
  }
}

}  // namespace chorus
