#include "cli/evaluation/porter_stemmer.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus {
namespace {

constexpr std::pair<std::string_view, std::string_view> kIrregular[] = {
    {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
    {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
    {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
    {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};

// The suffix becomes the replacement if the stem before it has at least this measure.
struct Rule {
  std::string_view suffix, replacement;
  int least_measure = 0;
};

constexpr Rule kPlurals[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
constexpr Rule kDoubleSuffixes[] = {
    {"ational", "ate", 1}, {"tional", "tion", 1}, {"enci", "ence", 1}, {"anci", "ance", 1}, {"izer", "ize", 1},
    {"bli", "ble", 1},     {"alli", "al", 1},     {"entli", "ent", 1}, {"eli", "e", 1},     {"ousli", "ous", 1},
    {"ization", "ize", 1}, {"ation", "ate", 1},   {"ator", "ate", 1},  {"alism", "al", 1},  {"iveness", "ive", 1},
    {"fulness", "ful", 1}, {"ousness", "ous", 1}, {"aliti", "al", 1},  {"iviti", "ive", 1}, {"biliti", "ble", 1},
    {"fulli", "ful", 1}};
constexpr Rule kAdjectives[] = {{"icate", "ic", 1}, {"ative", "", 1}, {"alize", "al", 1}, {"iciti", "ic", 1},
                                {"ical", "ic", 1},  {"ful", "", 1},   {"ness", "", 1}};
constexpr Rule kEndings[] = {{"al", "", 2},    {"ance", "", 2}, {"ence", "", 2}, {"er", "", 2},
                             {"ic", "", 2},    {"able", "", 2}, {"ible", "", 2}, {"ant", "", 2},
                             {"ement", "", 2}, {"ment", "", 2}, {"ent", "", 2}};
constexpr Rule kLastEndings[] = {{"ou", "", 2},  {"ism", "", 2}, {"ate", "", 2}, {"iti", "", 2},
                                 {"ous", "", 2}, {"ive", "", 2}, {"ize", "", 2}};

// Says for each letter of the word whether it is a consonant. The letter y is a consonant at the beginning of a word
// and after a vowel.
std::vector<bool> consonants(std::string_view word) {
  std::vector<bool> flags(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const bool vowel = std::string_view("aeiou").find(word[i]) != std::string_view::npos;
    flags[i] = word[i] == 'y' ? i == 0 || !flags[i - 1] : !vowel;
  }
  return flags;
}

// Porter's measure of a stem: the number of vowels that are followed by a consonant.
int measure(std::string_view stem) {
  const std::vector<bool> flags = consonants(stem);
  int count = 0;
  for (size_t i = 1; i < flags.size(); ++i) count += !flags[i - 1] && flags[i] ? 1 : 0;
  return count;
}

bool hasVowel(std::string_view stem) {
  for (const bool consonant : consonants(stem)) {
    if (!consonant) return true;
  }
  return false;
}

bool endsInDoubleConsonant(std::string_view word) {
  return word.size() >= 2 && word.back() == word[word.size() - 2] && consonants(word).back();
}

// Whether the word ends in consonant, vowel, consonant other than w, x and y; or is a vowel and a consonant.
bool endsInShortSyllable(std::string_view word) {
  const std::vector<bool> flags = consonants(word);
  const size_t n = word.size();
  if (n == 2) return !flags[0] && flags[1];
  return n >= 3 && flags[n - 3] && !flags[n - 2] && flags[n - 1] &&
         std::string_view("wxy").find(word.back()) == std::string_view::npos;
}

std::string without(std::string_view word, size_t last) { return std::string(word.substr(0, word.size() - last)); }

// Applies the first rule whose suffix the word has; the others are not tried even if the stem's measure is too small.
// Returns whether there was one.
bool applyFirst(std::span<const Rule> rules, std::string& word) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const std::string stem = without(word, rule.suffix.size());
    if (measure(stem) >= rule.least_measure) word = stem + std::string(rule.replacement);
    return true;
  }
  return false;
}

// Repairs a stem from which -ed or -ing was removed.
void repairStem(std::string& word) {
  if (word.ends_with("at") || word.ends_with("bl") || word.ends_with("iz")) {
    word += 'e';
  } else if (endsInDoubleConsonant(word)) {
    if (std::string_view("lsz").find(word.back()) == std::string_view::npos) word.pop_back();
  } else if (measure(word) == 1 && endsInShortSyllable(word)) {
    word += 'e';
  }
}

void removePastAndGerund(std::string& word) {
  if (word.ends_with("ied")) {
    word = without(word, 3) + (word.size() == 4 ? "ie" : "i");
    return;
  }
  if (word.ends_with("eed")) {
    if (measure(without(word, 3)) > 0) word.pop_back();
    return;
  }
  for (const std::string_view suffix : {"ed", "ing"}) {
    if (!word.ends_with(suffix)) continue;
    std::string stem = without(word, suffix.size());
    if (!hasVowel(stem)) continue;
    repairStem(stem);
    word = std::move(stem);
    return;
  }
}

void replaceDoubleSuffix(std::string& word) {
  while (word.ends_with("alli") && measure(without(word, 4)) > 0) word = without(word, 2);
  if (applyFirst(kDoubleSuffixes, word)) return;
  // The l of logi counts as part of the stem.
  if (word.ends_with("logi") && measure(without(word, 3)) > 0) word.pop_back();
}

void removeEnding(std::string& word) {
  if (applyFirst(kEndings, word)) return;
  if (word.ends_with("ion")) {
    const std::string stem = without(word, 3);
    if (measure(stem) > 1 && (stem.back() == 's' || stem.back() == 't')) word = stem;
    return;
  }
  applyFirst(kLastEndings, word);
}

void tidy(std::string& word) {
  if (word.ends_with('e')) {
    const std::string stem = without(word, 1);
    const int size = measure(stem);
    if (size > 1 || (size == 1 && !endsInShortSyllable(stem))) word = stem;
  }
  if (word.ends_with("ll") && measure(without(word, 1)) > 1) word.pop_back();
}
}  // namespace

std::string porterStem(std::string word) {
  for (const auto& [form, stem] : kIrregular) {
    if (word == form) return std::string(stem);
  }
  if (word.size() <= 2) return word;
  if (word.size() == 4 && word.ends_with("ies")) {
    word.pop_back();
  } else {
    applyFirst(kPlurals, word);
  }
  removePastAndGerund(word);
  // y becomes i after a consonant that is not the first letter.
  if (word.size() > 2 && word.back() == 'y' && consonants(without(word, 1)).back()) word.back() = 'i';
  replaceDoubleSuffix(word);
  applyFirst(kAdjectives, word);
  removeEnding(word);
  tidy(word);
  return word;
}

}  // namespace chorus
