// Regular expressions with syntax that only Oniguruma has, under limits that hold for the whole text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/tokenizer/encode_work.h"

namespace chorus {

class OnigurumaPattern {
 public:
  // Oniguruma can read the whole text between two steps that it counts, so its texts are short.
  static constexpr size_t kMaxTextBytes = size_t{64} << 10;

  // Throws Error that names source: kCorrupt when the pattern doesn't compile, kUnsupported when it is too large.
  OnigurumaPattern(std::string_view pattern, std::string_view source);
  ~OnigurumaPattern();
  OnigurumaPattern(const OnigurumaPattern&) = delete;
  OnigurumaPattern& operator=(const OnigurumaPattern&) = delete;

  // The searches of one text; they share what they spend. The pattern outlives it.
  class Search {
   public:
    // Throws Error(kInvalidArgument) for a text of more than kMaxTextBytes.
    Search(const OnigurumaPattern& pattern, Utf8View text, EncodeWork& work);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    // The first match that begins at or after `from`, a boundary. Throws Error(kInvalidArgument) when it takes too many
    // steps, and what the meter throws: the time that each step takes is charged.
    std::optional<std::pair<size_t, size_t>> search(size_t from);

   private:
    struct State;
    // The status of Oniguruma for matches that begin in [from, to].
    int searchRange(size_t from, size_t to);

    const OnigurumaPattern& pattern_;
    Utf8View text_;
    EncodeWork& work_;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string source_;
  bool from_start_ = false;  // looks at where the search began
};

}  // namespace chorus
