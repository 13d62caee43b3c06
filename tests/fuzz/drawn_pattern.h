// Draws regular expressions from a fuzzer's bytes: everything that regex_syntax.h supports, and some syntax that it
// does not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuzz/drawn.h"

namespace chorus::test {

inline std::string drawnPattern(Drawn& drawn, int depth = 3) {
  static const std::vector<std::string> kItems = {"a",           "b",
                                                  "ab",          ".",
                                                  "\\s",         "\\S",
                                                  "\\w",         "\\W",
                                                  "\\d",         "\\D",
                                                  "\\h",         "\\p{L}",
                                                  "\\P{L}",      "\\p{Lu}",
                                                  "\\p{^N}",     "\\p{Han}",
                                                  "[ab]",        "[^a]",
                                                  "[a-c1]",      "[^\\s\\p{L}]",
                                                  "[[:alpha:]]", "[[:^space:]]",
                                                  "[a[bc]]",     "[-a]",
                                                  "[a-]",        "\\R",
                                                  "\\N",         "\\O",
                                                  "^",           "$",
                                                  "\\A",         "\\z",
                                                  "\\Z",         "\\b",
                                                  "\\B",         "\\n",
                                                  "\\x61",       "\\x{65e5}",
                                                  "\\u00e9",     "é",
                                                  "日",          " ",
                                                  "'",           "\\.",
                                                  "(?#c)",       "[\\w-]",
                                                  "[\\n-\\r]",   "]",
                                                  "}",           "-",
                                                  "\\p{M}",      "\\X",
                                                  "\\K",         "\\1",
                                                  "\\G",         "(?i:ß)",
                                                  "(?i:ss)",     "[a&&b]",
                                                  "\\y",         "[[:punct:]]"};
  static const std::vector<std::string> kQuantifiers = {"*",  "+",   "?",    "*?",    "+?",   "??",  "*+",     "++",
                                                        "?+", "{2}", "{1,}", "{0,2}", "{,2}", "{0}", "{1,3}?", "{40}"};
  if (depth == 0 || drawn.ended()) return drawn.oneOf(kItems);
  // Calls are made one after another, because a compiler may evaluate the operands of a sum in any order.
  const size_t kind = drawn.below(12);
  std::string pattern;
  const auto put = [&](std::string_view text) { pattern += text; };
  const auto inner = [&] { pattern += drawnPattern(drawn, depth - 1); };
  const auto quantifier = [&] { pattern += drawn.oneOf(kQuantifiers); };
  switch (kind) {
    case 0:
      return drawn.oneOf(kItems);
    case 1:
    case 2:
      inner(), inner();
      break;
    case 3:
      inner(), put("|"), inner();
      break;
    case 4:
      put("(?:"), inner(), put("|"), inner(), put(")"), quantifier();
      break;
    case 5:
      put("("), inner(), put(")"), quantifier();
      break;
    case 6:
      put(drawn.chance() ? "(?=" : "(?!"), inner(), put(")"), inner();
      break;
    case 7:
      put(drawn.chance() ? "(?<=" : "(?<!"), inner(), put(")"), inner();
      break;
    case 8:
      put("(?>"), inner(), put(")"), inner();
      break;
    case 9:
      put(drawn.chance() ? "(?i:" : "(?m:"), inner(), put(")"), inner();
      break;
    case 10:
      put("(?<n>"), inner(), put(")"), inner();
      break;
    default:
      put(drawn.oneOf(kItems)), quantifier();
      break;
  }
  return pattern;
}

inline std::string drawnText(Drawn& drawn, size_t most) {
  static const std::vector<std::string> kAtoms = {"a",
                                                  "b",
                                                  "ab",
                                                  "A",
                                                  "S",
                                                  "s",
                                                  "1",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  "'s",
                                                  "-",
                                                  "_",
                                                  ".",
                                                  "é",
                                                  "e\u0301",
                                                  "\u0301",
                                                  "\u0316",
                                                  "日",
                                                  "😀",
                                                  "\U0001F468\u200D\U0001F469",
                                                  "ß",
                                                  "\u017F",
                                                  "\u212A",
                                                  "\u2028",
                                                  "\u00A0",
                                                  "½",
                                                  "\u2581",
                                                  "<s>",
                                                  "</s>",
                                                  "<0x41>",
                                                  "\uFB01",
                                                  "\uAC00",
                                                  "\u1100\u1161",
                                                  "\uFDFA",
                                                  std::string(1, '\0'),
                                                  "\uFFFD",
                                                  "\xFF",
                                                  "\xE6\x97",
                                                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                                  "\u0130",
                                                  "x"};
  std::string text;
  for (size_t n = drawn.below(most); n > 0; --n) text += drawn.oneOf(kAtoms);
  return text;
}

}  // namespace chorus::test
