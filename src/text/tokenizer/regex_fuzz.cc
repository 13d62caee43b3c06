// Compares the native matcher with Oniguruma: both find the same matches, or one of them gives up. Input that begins
// with a zero byte is a pattern, another zero byte, and the text; other input is a list of choices from which both are
// drawn.
// parses: src/text/tokenizer/regex_scanner.cc src/text/tokenizer/regex_syntax.cc src/text/tokenizer/character_set.cc
// parses: src/text/tokenizer/regex_program.cc src/text/tokenizer/regex_matcher.cc
// parses: src/text/tokenizer/regex.cc src/text/tokenizer/oniguruma_pattern.cc
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fuzz/drawn_pattern.h"
#include "fuzz/fuzz_target.h"
#include "text/oniguruma_types.h"
#include "text/tokenizer/oniguruma_pattern.h"
#include "text/tokenizer/regex.h"

// Both engines may use their full work limit on a text of any length, and Oniguruma has its own stack. A pattern of a
// few bytes may compile to thousands of operations.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 60'000, .bytes = 4 << 20};

namespace {

using Ranges = std::vector<chorus::TextRange>;
constexpr uint64_t kWork = uint64_t{1} << 22;

// Returns nullopt if the search gave up.
template <typename Find>
std::optional<Ranges> within(size_t text_bytes, Find&& find) {
  using namespace chorus;
  WorkMeter meter({.work = kWork});
  Scratch scratch(Scratch::limitFor(text_bytes), meter);
  EncodeWork work{meter, scratch};
  Ranges ranges;
  try {
    find(work, ranges);
  } catch (const Error&) {
    return std::nullopt;
  }
  if (scratch.left() != Scratch::limitFor(text_bytes)) __builtin_trap();
  return ranges;
}

// Whether Oniguruma knows all characters. The native matcher knows some that an older Oniguruma does not.
bool knowsAll(chorus::Utf8View text) {
  for (size_t at = 0; at < text.size();) {
    const auto character = text.characterAt(at);
    if (!chorus::isKnownToOniguruma(character.code)) return false;
    at += character.length;
  }
  return true;
}

// Returns nullopt if Oniguruma gave up, or the pattern is too large for it.
std::optional<Ranges> matchesOfOniguruma(const std::string& pattern, chorus::Utf8View text) {
  using namespace chorus;
  std::optional<OnigurumaPattern> compiled;
  try {
    compiled.emplace(pattern, "p");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return std::nullopt;
    std::fprintf(stderr, "only one engine takes the pattern %s: %s\n", pattern.c_str(), error.what());
    __builtin_trap();
  }
  return within(text.size(), [&](EncodeWork& work, Ranges& ranges) {
    OnigurumaPattern::Search search(*compiled, text, work);
    size_t last_end = std::string::npos;
    for (size_t from = 0; from <= text.size();) {
      const auto match = search.search(from);
      if (!match) break;
      if (match->first == match->second && match->second == last_end) {
        if (from >= text.size()) break;
        from += text.characterAt(from).length;
        continue;
      }
      ranges.push_back(*match);
      from = last_end = match->second;
    }
  });
}

// Oniguruma 6.9.8 tries (?=b)\O* at the text's start only, because a pattern that begins with \O* cannot match
// elsewhere if it does not match there; it overlooks what the lookahead changes. Behind an optional part it tries every
// position.
std::string withoutAnchor(const std::string& pattern) { return "(?:\\b\\B.)?(?:" + pattern + ")"; }

void compare(const std::string& pattern, const std::string& text) {
  using namespace chorus;
  const auto valid = Utf8View::check(text);
  if (!valid || pattern.find("[:punct:]") != std::string::npos || !knowsAll(*valid)) return;
  std::optional<Regex> regex;
  try {
    regex.emplace(pattern, "p");
  } catch (const Error&) {
    return;
  }
  const auto ours = within(text.size(), [&](EncodeWork& work, Ranges& ranges) {
    regex->forEachMatch(*valid, work, [&](size_t begin, size_t end) { return ranges.emplace_back(begin, end), true; });
  });
  if (!regex->isNative() || !ours) return;
  const auto unlike_ours = [&](const std::string& same_pattern) {
    const auto theirs = matchesOfOniguruma(same_pattern, *valid);
    return theirs && *theirs != *ours;
  };
  if (!unlike_ours(pattern) || !unlike_ours(withoutAnchor(pattern))) return;
  std::fprintf(stderr, "the engines differ: pattern %s\ntext %s\n", pattern.c_str(), text.c_str());
  __builtin_trap();
}
}  // namespace

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 0) {
    const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
    const size_t end = std::min(input.find('\0'), input.size());
    return compare(input.substr(0, end), input.substr(std::min(end + 1, input.size())));
  }
  Drawn drawn(data, size);
  const std::string pattern = drawnPattern(drawn, 4);
  std::string text = drawnText(drawn, 16);
  for (size_t n = drawn.below(4); n > 0; --n) text += text;
  compare(pattern, text);
}
