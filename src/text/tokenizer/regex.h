// Regular expressions of tokenizer files: Oniguruma's own syntax over UTF-8, with limits on work.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus {

// Byte range of a match.
using TextRange = std::pair<size_t, size_t>;

class Regex {
 public:
  // Throws Error(kCorrupt) that names source on a pattern that doesn't compile.
  Regex(std::string_view pattern, std::string_view source);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // All matches from left to right, none overlapping; an empty match directly after a match is passed over. text
  // must be valid UTF-8. Throws Error(kExhausted) when the search costs more steps than the limit, which grows
  // with the text: a pattern that backtracks without end stops instead of hanging. Thread-safe.
  std::vector<TextRange> findAll(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chorus
