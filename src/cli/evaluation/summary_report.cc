#include "cli/evaluation/summary_report.h"

#include <fmt/format.h>

#include <vector>

#include "cli/evaluation/rouge_summary.h"
#include "cli/evaluation/summary_prompt.h"

namespace chorus {
namespace {

// Appends the lines of the scores, and returns rouge1 times 100.
double addScores(const Summaries& summaries, const Articles& articles, const SummarizeArgs& args, std::string& text) {
  std::vector<RougeScores> scores;
  for (const Summary& summary : summaries.list) {
    scores.push_back(rougeScores(articles[summary.article].reference, summary.text, args.use_stemmer));
  }
  RougeValues values = {};
  if (args.estimate_accuracy_std_dev) {
    const RougeSpread spread = rougeSpread(scores);
    values = spread.mean;
    for (size_t i = 0; i < values.size(); ++i) {
      text += fmt::format("  {}: {} ({})\n", kRougeNames[i], pythonNumber(values[i] * 100),
                          pythonNumber(spread.deviation[i] * 100));
    }
  } else {
    values = bootstrapRouge(scores);
    for (size_t i = 0; i < values.size(); ++i) {
      text += fmt::format("  {}: {}\n", kRougeNames[i], pythonNumber(values[i] * 100));
    }
  }
  return values[0] * 100;
}
}  // namespace

std::string pythonNumber(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

SummaryReport reportOn(const Summaries& summaries, const Articles& articles, const SummarizeArgs& args,
                       std::string_view name, std::string_view result_name) {
  size_t tokens = 0;
  double perplexity = 0;
  for (const Summary& summary : summaries.list) {
    tokens += summary.tokens;
    perplexity += summary.perplexity.value_or(0);
  }
  SummaryReport report;
  report.perplexity = perplexity / static_cast<double>(summaries.list.size());
  report.text = fmt::format(
      "{0} (total latency: {1} sec)\n{0} (total output tokens: {2})\n{0} (tokens per second: {3})\n{4} beam 0 result\n",
      name, pythonNumber(summaries.seconds), tokens, pythonNumber(static_cast<double>(tokens) / summaries.seconds),
      result_name);
  if (findEvaluationTask(args.eval_task).scores_answers) {
    report.rouge1 = addScores(summaries, articles, args, report.text);
  }
  if (args.eval_ppl) report.text += fmt::format("  Per-token perplexity: {}\n", pythonNumber(report.perplexity));
  return report;
}

std::string sampleText(const Summaries& summaries, const Articles& articles, std::string_view name) {
  const Article& article = articles[summaries.first.article];
  const std::string line(57, '-');
  return fmt::format("{0}\n{1} Generated: \n Input: {2}\n\n Reference: {3}\n\n Output: {4}\n{0}\n", line, name,
                     article.text, article.reference, summaries.first.text);
}

}  // namespace chorus
