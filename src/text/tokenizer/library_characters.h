// Classes of characters as the tokenizers library defines them. Its tables come from several versions of Unicode, so
// they differ from the ones of text/unicode.h for characters that are newer than one of them.
#pragma once

#include <cstdint>

namespace chorus::library {

// True for the characters that a BertNormalizer removes: NUL, U+FFFD, and the categories Cc, Cf and Co, except for tab,
// newline and return.
bool isControl(uint32_t code);
// True for the characters that a BertNormalizer which strips accents removes: the category Mn.
bool isNonspacingMark(uint32_t code);
// True for the characters that StripAccents removes: the categories M*.
bool isMark(uint32_t code);
// True for the categories P*, and for all of ASCII's punctuation and symbols.
bool isPunctuation(uint32_t code);
// True for the categories N*.
bool isNumber(uint32_t code);
// True for the characters that match \w in the library's regular expressions, except for those of Oniguruma.
bool isWord(uint32_t code);

// True if the library's normal forms keep the character although a newer Unicode decomposes, reorders or composes it.
bool isUnknownToNormalForms(uint32_t code);
// The lower case of a character. Only U+0130 has one of two characters, for which this is the first.
uint32_t lowercaseOf(uint32_t code);

// A number for each script as UnicodeScripts sees it: 0 for a character that belongs to the script before it.
uint32_t scriptOf(uint32_t code);

}  // namespace chorus::library
