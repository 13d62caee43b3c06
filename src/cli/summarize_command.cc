#include "cli/summarize_command.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/config.h"
#include "cli/evaluation/article_file.h"
#include "cli/evaluation/embedded_files.h"
#include "cli/evaluation/numpy_random.h"
#include "cli/evaluation/summaries.h"
#include "cli/evaluation/summarize_args.h"
#include "cli/evaluation/summary_prompt.h"
#include "cli/evaluation/summary_report.h"
#include "cli/print_text.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// The articles in the order in which the package datasets shuffles them.
Articles loadArticles(const SummarizeArgs& args, const EvaluationTask& task) {
  const ArticleColumns columns = {task.input, task.reference};
  Articles articles;
  if (!args.dataset_dir.empty()) {
    articles = readArticles(findArticleFile(args.dataset_dir, task.dataset, task.split), columns);
  } else if (task.name == evaluationTasks().front().name) {
    articles = parseArticlesJson(kDefaultArticles, columns, "the built-in articles");
  } else {
    fail(ErrorCode::kInvalidArgument, "--eval_task {} needs --dataset_path: a file with the columns {} and {}",
         task.name, task.input, task.reference);
  }
  Articles shuffled;
  for (const size_t index : numpyPermutation(args.sampling.random_seed, articles.size())) {
    shuffled.push_back(std::move(articles[index]));
  }
  return shuffled;
}

// Whether summarize.py gives a model its prompts as chat messages: Qwen2 and Qwen2-MoE. qwen_type is TensorRT-LLM's
// field of a checkpoint, model_type the key of a Hugging Face config.
bool takesChats(const SummarizeArgs& args) {
  const auto kind_in = [](const fs::path& path, const char* object, const char* key) {
    if (!fs::is_regular_file(path)) return std::string();
    const Json config = readModelConfigFile(path);
    const Json& owner = object != nullptr && config.contains(object) ? config.at(object) : config;
    const auto found = owner.is_object() ? owner.find(key) : owner.end();
    return owner.is_object() && found != owner.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::string kind;
  if (args.test_trt_llm) kind = kind_in(fs::path(args.engine_dir) / "config.json", "pretrained_config", "qwen_type");
  for (const std::string& dir : {args.hf_model_dir, args.tokenizer_dir}) {
    if (kind.empty() && !dir.empty()) kind = kind_in(fs::path(dir) / "config.json", nullptr, "model_type");
  }
  return kind.find("qwen2") != std::string::npos;
}

void writeSummaries(const SummarizeArgs& args, const Summaries& summaries, const char* file, const std::string& model) {
  std::string text = fmt::format("{}\nTokenizer path: {}\n", model, args.tokenizer_dir);
  for (const Summary& summary : summaries.list) {
    text += fmt::format("[{}] [Beam 0] {}\n", summary.article, summary.text);
  }
  fs::create_directories(args.output_dir);
  writeFileAtomically(fs::path(args.output_dir) / file, text);
}

SummaryReport report(const SummarizeArgs& args, const Summaries& summaries, const Articles& articles, const char* name,
                     const char* short_name) {
  if (summaries.list.empty()) {
    fail(ErrorCode::kInvalidArgument, "--min_input_length {}: no prompt has more tokens", args.min_input_length);
  }
  const SummaryReport report = reportOn(summaries, articles, args, name, short_name);
  printText(report.text);
  return report;
}

// An accuracy below a threshold is a failure with exit status 1, not a wrong command line.
void checkAccuracy(const SummarizeArgs& args, const SummaryReport& report) {
  const bool scored = findEvaluationTask(args.eval_task).scores_answers;
  if (scored && !(report.rouge1 > args.rouge1_threshold)) {
    throw std::runtime_error(fmt::format("[FAILED] rouge1 ({}) is smaller than threshold ({}).",
                                         pythonNumber(report.rouge1), pythonNumber(args.rouge1_threshold)));
  }
  if (args.eval_ppl && !(report.perplexity < args.ppl_threshold)) {
    throw std::runtime_error(fmt::format("[FAILED] average PPL ({}) is larger than threshold ({}).",
                                         pythonNumber(report.perplexity), pythonNumber(args.ppl_threshold)));
  }
}

void runSummarize(SummarizeArgs& args) {
  args.check();
  initLogging(args.log_level);
  const EvaluationTask& task = findEvaluationTask(args.eval_task);
  const Articles articles = loadArticles(args, task);
  const std::shared_ptr<const TextCodec> codec = loadTextCodec(args.tokenizer_dir);
  const bool as_chat = takesChats(args) && codec->hasChatTemplate();
  std::vector<std::string> prompts;
  const size_t most = static_cast<size_t>(std::max(args.max_ite, 1)) * static_cast<size_t>(args.batch_size);
  const size_t used = args.min_input_length > 0 ? articles.size() : std::min(articles.size(), most);
  for (size_t i = 0; i < used; ++i) prompts.push_back(promptText(articles[i].text, task.suffix));

  std::optional<SummaryReport> of_engine;
  std::optional<Summaries> by_engine, by_transformers;
  if (args.test_trt_llm) {
    by_engine = summarizeWithEngine(args, prompts, as_chat, *codec);
    if (task.scores_answers) printText(sampleText(*by_engine, articles, "TensorRT-LLM"));
    if (!args.output_dir.empty()) writeSummaries(args, *by_engine, "trtllm.out", "Engine path: " + args.engine_dir);
  }
  if (args.test_hf) {
    by_transformers = summarizeWithTransformers(args, prompts, as_chat, *codec);
    if (task.scores_answers) printText(sampleText(*by_transformers, articles, "HF"));
    if (!args.output_dir.empty()) writeSummaries(args, *by_transformers, "hf.out", "Model path: " + args.hf_model_dir);
  }
  if (args.max_ite == 0) return;
  if (by_engine) of_engine = report(args, *by_engine, articles, "TensorRT-LLM", "TensorRT-LLM");
  if (by_transformers) report(args, *by_transformers, articles, "Hugging Face", "HF");
  if (args.check_accuracy && of_engine) checkAccuracy(args, *of_engine);
}
}  // namespace

void addSummarizeCommand(CLI::App& app) {
  auto args = std::make_shared<SummarizeArgs>();
  CLI::App* command = app.add_subcommand("summarize", "Evaluate an engine: ROUGE of its summaries, and perplexity");
  args->addTo(*command);
  command->callback([args] { runSummarize(*args); });
}

}  // namespace chorus
