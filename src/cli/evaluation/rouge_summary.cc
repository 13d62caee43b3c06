#include "cli/evaluation/rouge_summary.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/evaluation/numpy_random.h"

namespace chorus {

RougeValues bootstrapRouge(std::span<const RougeScores> scores) {
  constexpr size_t kSamples = 1000;
  RougeValues values = {};
  NumpyChoices choices(0);
  for (size_t kind = 0; kind < values.size(); ++kind) {
    std::vector<double> means(kSamples);
    for (double& mean : means) {
      for (const size_t index : choices.draw(scores.size())) mean += scores[index][kind].f_measure;
      mean /= static_cast<double>(scores.size());
    }
    std::sort(means.begin(), means.end());
    const double low = means[kSamples / 2 - 1], high = means[kSamples / 2];
    values[kind] = high - (high - low) * 0.5;
  }
  return values;
}

RougeSpread rougeSpread(std::span<const RougeScores> scores) {
  RougeSpread spread = {};
  const auto count = static_cast<double>(scores.size());
  for (size_t kind = 0; kind < kRougeNames.size(); ++kind) {
    for (const RougeScores& score : scores) spread.mean[kind] += score[kind].f_measure / count;
    double squares = 0;
    for (const RougeScores& score : scores) squares += std::pow(score[kind].f_measure - spread.mean[kind], 2);
    spread.deviation[kind] = std::sqrt(squares / count);
  }
  return spread;
}

}  // namespace chorus
