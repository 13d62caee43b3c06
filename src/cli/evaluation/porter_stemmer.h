// The Porter stemmer with the extensions of NLTK's PorterStemmer (its default mode), which the rouge-score package
// uses.
#pragma once

#include <string>

namespace chorus {

// The stem of a word of lower-case letters and digits. Source: M. F. Porter, "An algorithm for suffix stripping",
// Program 14 (1980), with the changes of NLTK 3.
std::string porterStem(std::string word);

}  // namespace chorus
