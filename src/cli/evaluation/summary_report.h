// The report that `chorus summarize` prints about a model: the lines of TensorRT-LLM's summarize.py.
#pragma once

#include <string>
#include <string_view>

#include "cli/evaluation/article_file.h"
#include "cli/evaluation/summaries.h"

namespace chorus {

struct SummaryReport {
  std::string text;
  double rouge1 = 0;      // times 100
  double perplexity = 0;  // mean over the articles
};

// name: of the model in the first lines ("TensorRT-LLM"); result_name: in the line before the scores.
// summaries.list must not be empty.
SummaryReport reportOn(const Summaries& summaries, const Articles& articles, const SummarizeArgs& args,
                       std::string_view name, std::string_view result_name);

// The first article, its reference and its summary.
std::string sampleText(const Summaries& summaries, const Articles& articles, std::string_view name);

// A number as Python prints it: with a point or an exponent.
std::string pythonNumber(double value);

}  // namespace chorus
