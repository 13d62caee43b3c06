// Regular expressions of files that nobody vouches for: Oniguruma's own syntax over UTF-8, with every step charged.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"
#include "text/tokenizer/encode_work.h"

namespace chorus {

// Byte range of a match.
using TextRange = std::pair<size_t, size_t>;

// Nearly all patterns are matched by text/tokenizer/regex_matcher.h; those with syntax that it lacks by Oniguruma, on
// short texts. Immutable; every const function may be called from any thread.
class Regex {
 public:
  // Throws Error that names source: kCorrupt on a pattern that doesn't compile, kUnsupported on one that is too large.
  Regex(std::string_view pattern, std::string_view source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Calls found(begin, end) for all matches from left to right, none overlapping, until it returns false. An empty
  // match directly after a match is passed over. The work of all searches is charged; throws what the meter throws, and
  // Error(kInvalidArgument) when the memory or the steps of a search exceed their limits.
  void forEachMatch(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t begin, size_t end)> found) const;
  // Whether it matches anywhere in the text.
  bool matches(Utf8View text, EncodeWork& work) const;

  // False for a pattern that is left to Oniguruma.
  bool isNative() const;
  size_t memoryBytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chorus
