// ROUGE scores of one text against its reference, equal to those of the PyPI package rouge-score.
//
// Tokens are the runs of [a-z0-9] of the lower-case text. With `stem`, a token of more than three characters is
// replaced by its stem (porter_stemmer.h), as with the package's use_stemmer. Text is UTF-8; invalid bytes separate
// tokens.
#pragma once

#include <array>
#include <string_view>

namespace chorus {

struct RougeScore {
  double precision = 0, recall = 0, f_measure = 0;
};

inline constexpr std::array<std::string_view, 4> kRougeNames = {"rouge1", "rouge2", "rougeL", "rougeLsum"};
// Scores in the order of kRougeNames: by common unigrams; by common bigrams; by the longest common subsequence (LCS) of
// tokens; and, for each line of the reference, by the union of its LCS with all lines of the prediction.
using RougeScores = std::array<RougeScore, kRougeNames.size()>;

// Throws Error(kUnsupported) if a line of the reference and one of the prediction are too long for a table of their
// subsequences (kMostTableCells).
RougeScores rougeScores(std::string_view reference, std::string_view prediction, bool stem);
inline constexpr size_t kMostTableCells = size_t{1} << 26;

}  // namespace chorus
