// Summarises the ROUGE scores of all texts of an evaluation: one value for each kind of score.
#pragma once

#include <span>

#include "cli/evaluation/rouge.h"

namespace chorus {

using RougeValues = std::array<double, kRougeNames.size()>;  // F measures, in the order of kRougeNames

// The medians of 1,000 bootstrap means: what rouge-score's BootstrapAggregator and the metric `rouge` of the package
// evaluate give for the random seed 0. scores must not be empty and must be fewer than 2^32.
RougeValues bootstrapRouge(std::span<const RougeScores> scores);

// Mean and population standard deviation. scores must not be empty.
struct RougeSpread {
  RougeValues mean, deviation;
};
RougeSpread rougeSpread(std::span<const RougeScores> scores);

}  // namespace chorus
