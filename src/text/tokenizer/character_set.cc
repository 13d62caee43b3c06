#include "text/tokenizer/character_set.h"

#include <oniguruma.h>

#include <algorithm>

#include "text/oniguruma_types.h"

namespace chorus::regex {

void CharacterSet::prepare() {
  cost_ = static_cast<uint32_t>(8 * (ranges_.size() + 4 * types_.size()));
  for (const CharacterSet& set : sets_) cost_ += set.cost_;
  for (uint32_t code = 0; code < 128; ++code) {
    if (evaluate(code)) ascii_[code / 64] |= uint64_t{1} << (code % 64);
  }
}

// Below U+0100, Oniguruma's is_code_ctype() and its range tables disagree. Brackets and \p use the range tables, and
// from U+0100 on so does is_code_ctype().
bool CharacterSet::hasType(uint32_t code, int type) {
  if (type == kWordOperation) return hasOnigurumaType(code, ONIGENC_CTYPE_WORD);
  const auto ctype = static_cast<OnigCtype>(type);
  if (code >= 256) return hasOnigurumaType(code, type);
  OnigCodePoint end = 0;
  const OnigCodePoint* ranges = nullptr;
  ONIG_ENCODING_UTF8->get_ctype_code_range(ctype, &end, &ranges);
  for (OnigCodePoint i = 0; ranges != nullptr && i < ranges[0] && ranges[1 + 2 * i] <= code; ++i) {
    if (code <= ranges[2 + 2 * i]) return true;
  }
  return false;
}

bool CharacterSet::evaluate(uint32_t code) const {
  bool found = std::any_of(ranges_.begin(), ranges_.end(),
                           [&](const Range& range) { return code >= range.first && code <= range.last; });
  for (size_t i = 0; !found && i < types_.size(); ++i) {
    found = hasType(code, types_[i].type) != types_[i].negated;
  }
  for (size_t i = 0; !found && i < sets_.size(); ++i) found = sets_[i].evaluate(code);
  return found != negated_;
}

}  // namespace chorus::regex
