// Regular expressions whose syntax only Oniguruma supports, with limits that hold for a whole text.
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
  // Oniguruma may read the whole text between two steps that it counts, so only short texts are allowed.
  static constexpr size_t kMaxTextBytes = size_t{64} << 10;

  // Throws Error that names source: kCorrupt when the pattern doesn't compile, kUnsupported when it is too large
  // or too deeply nested.
  OnigurumaPattern(std::string_view pattern, std::string_view source);
  ~OnigurumaPattern();
  OnigurumaPattern(const OnigurumaPattern&) = delete;
  OnigurumaPattern& operator=(const OnigurumaPattern&) = delete;

  // The searches in one text, which share one budget. The pattern must outlive it.
  class Search {
   public:
    // Throws Error(kInvalidArgument) for a text of more than kMaxTextBytes.
    Search(const OnigurumaPattern& pattern, Utf8View text, EncodeWork& work);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;

    // Returns the first match that begins at or after `from`, a character boundary. Throws Error(kInvalidArgument) if
    // it takes too many steps, and what the meter throws. The time that each call of Oniguruma takes is charged.
    std::optional<std::pair<size_t, size_t>> search(size_t from);

   private:
    struct State;
    // These run Oniguruma and return its status: for the first match from `from` on, and for a match that begins at
    // `at`.
    int searchFrom(size_t from);
    int matchAt(size_t at);
    template <typename Call>
    int charged(Call&& call);

    const OnigurumaPattern& pattern_;
    Utf8View text_;
    EncodeWork& work_;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string source_;
  bool from_start_ = false;  // the pattern contains \G and depends on where the search began
};

}  // namespace chorus
