#include "cli/evaluation/rouge.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/evaluation/porter_stemmer.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Tokens are numbers: equal words have equal numbers.
using Tokens = std::vector<uint32_t>;

class Vocabulary {
 public:
  explicit Vocabulary(bool stem) : stem_(stem) {}

  Tokens tokensOf(std::string_view text) {
    Tokens tokens;
    std::string word;
    // Lower case first: it turns two characters outside ASCII into ASCII letters.
    for (const char c : toLower(toValidUtf8(text)) + ' ') {
      if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
        word += c;
      } else if (!word.empty()) {
        tokens.push_back(number(std::exchange(word, "")));
      }
    }
    return tokens;
  }

  // The tokens of each line that is not empty.
  std::vector<Tokens> linesOf(std::string_view text) {
    std::vector<Tokens> lines;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      if (end > 0) lines.push_back(tokensOf(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
  }

 private:
  uint32_t number(std::string word) {
    if (stem_ && word.size() > 3) word = porterStem(std::move(word));
    return numbers_.try_emplace(std::move(word), static_cast<uint32_t>(numbers_.size())).first->second;
  }

  bool stem_;
  std::unordered_map<std::string, uint32_t> numbers_;
};

RougeScore scoreOf(double precision, double recall) {
  const double sum = precision + recall;
  return {precision, recall, sum > 0 ? 2 * precision * recall / sum : 0};
}

using Counts = std::unordered_map<uint64_t, size_t>;

Counts countsOf(const Tokens& tokens, bool pairs) {
  Counts counts;
  for (size_t i = pairs ? 1 : 0; i < tokens.size(); ++i) {
    ++counts[pairs ? uint64_t{tokens[i - 1]} << 32 | tokens[i] : tokens[i]];
  }
  return counts;
}

RougeScore scoreNgrams(const Tokens& reference, const Tokens& prediction, bool pairs) {
  const Counts expected = countsOf(reference, pairs), found = countsOf(prediction, pairs);
  size_t common = 0;
  for (const auto& [ngram, count] : expected) {
    const auto other = found.find(ngram);
    if (other != found.end()) common += std::min(count, other->second);
  }
  const auto share = [&](const Tokens& tokens) {
    const size_t ngrams = pairs && !tokens.empty() ? tokens.size() - 1 : tokens.size();
    return static_cast<double>(common) / static_cast<double>(std::max<size_t>(ngrams, 1));
  };
  return scoreOf(share(prediction), share(reference));
}

size_t longestCommon(const Tokens& a, const Tokens& b) {
  std::vector<uint32_t> last(b.size() + 1), row(b.size() + 1);
  for (const uint32_t token : a) {
    for (size_t j = 1; j <= b.size(); ++j) row[j] = token == b[j - 1] ? last[j - 1] + 1 : std::max(last[j], row[j - 1]);
    last.swap(row);
  }
  return last.back();
}

RougeScore scoreLongestCommon(const Tokens& reference, const Tokens& prediction) {
  if (reference.empty() || prediction.empty()) return {};
  const auto common = static_cast<double>(longestCommon(reference, prediction));
  return scoreOf(common / static_cast<double>(prediction.size()), common / static_cast<double>(reference.size()));
}

// Adds the positions in the reference's line of one longest common subsequence. Of several, it takes the one that the
// package's way back through the table takes.
void addCommonPositions(const Tokens& reference, const Tokens& prediction, std::set<size_t>& positions) {
  const size_t rows = reference.size() + 1, columns = prediction.size() + 1;
  if (rows > kMostTableCells / columns) {
    fail(ErrorCode::kUnsupported,
         "rougeLsum: a line of {} words against one of {} is too long; divide them by newlines", reference.size(),
         prediction.size());
  }
  std::vector<uint32_t> table(rows * columns);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return table[i * columns + j]; };
  for (size_t i = 1; i < rows; ++i) {
    for (size_t j = 1; j < columns; ++j) {
      at(i, j) = reference[i - 1] == prediction[j - 1] ? at(i - 1, j - 1) + 1 : std::max(at(i - 1, j), at(i, j - 1));
    }
  }
  for (size_t i = reference.size(), j = prediction.size(); i > 0 && j > 0;) {
    if (reference[i - 1] == prediction[j - 1]) {
      positions.insert(i - 1);
      --i, --j;
    } else if (at(i, j - 1) > at(i - 1, j)) {
      --j;
    } else {
      --i;
    }
  }
}

RougeScore scoreSummary(const std::vector<Tokens>& reference, const std::vector<Tokens>& prediction) {
  struct Side {
    size_t words = 0;
    std::unordered_map<uint32_t, size_t> left;  // occurrences that are not yet counted as common
  };
  const auto sideOf = [](const std::vector<Tokens>& lines) {
    Side side;
    for (const Tokens& line : lines) {
      side.words += line.size();
      for (const uint32_t token : line) ++side.left[token];
    }
    return side;
  };
  Side expected = sideOf(reference), found = sideOf(prediction);
  if (expected.words == 0 || found.words == 0) return {};
  size_t common = 0;
  for (const Tokens& line : reference) {
    std::set<size_t> positions;
    for (const Tokens& other : prediction) addCommonPositions(line, other, positions);
    for (const size_t position : positions) {
      size_t &wanted = expected.left[line[position]], &there = found.left[line[position]];
      if (wanted == 0 || there == 0) continue;
      --wanted, --there;
      ++common;
    }
  }
  const auto hits = static_cast<double>(common);
  return scoreOf(hits / static_cast<double>(found.words), hits / static_cast<double>(expected.words));
}
}  // namespace

RougeScores rougeScores(std::string_view reference, std::string_view prediction, bool stem) {
  Vocabulary vocabulary(stem);
  const Tokens expected = vocabulary.tokensOf(reference), found = vocabulary.tokensOf(prediction);
  return {scoreNgrams(expected, found, false), scoreNgrams(expected, found, true), scoreLongestCommon(expected, found),
          scoreSummary(vocabulary.linesOf(reference), vocabulary.linesOf(prediction))};
}

}  // namespace chorus
