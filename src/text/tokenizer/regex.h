// Regular expressions from untrusted files: Oniguruma's syntax over UTF-8, with every step charged.
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

// Nearly all patterns are matched by text/tokenizer/regex_matcher.h; patterns with syntax that it lacks are matched by
// Oniguruma, on short texts only. Immutable; every const function may be called from any thread.
class Regex {
 public:
  // Throws Error that names source: kCorrupt on a pattern that doesn't compile, kUnsupported on one that is too large.
  // Compiles first and charges the meter then, with a nanosecond for a byte of work; throws what the meter throws. One
  // pattern takes at most about 0.1 s.
  Regex(std::string_view pattern, std::string_view source, WorkMeter& meter);
  // Compiles a trusted pattern, whose work is neither charged nor limited. Throws Error as above.
  Regex(std::string_view pattern, std::string_view source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Calls found(begin, end) for all matches from left to right, without overlaps, until it returns false. Skips an
  // empty match directly after a match. Charges the work of all searches; throws what the meter throws, and
  // Error(kInvalidArgument) if a search exceeds its limit of memory or steps.
  void forEachMatch(Utf8View text, EncodeWork& work, FunctionRef<bool(size_t begin, size_t end)> found) const;
  // Whether the pattern matches anywhere in the text.
  bool matches(Utf8View text, EncodeWork& work) const;

  // False if the pattern is matched by Oniguruma.
  bool isNative() const;
  size_t memoryBytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chorus
