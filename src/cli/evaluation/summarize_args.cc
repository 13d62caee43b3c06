#include "cli/evaluation/summarize_args.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/backend_flags.h"
#include "cli/evaluation/summarize_flags.h"
#include "cli/evaluation/summary_prompt.h"
#include "cli/flag_values.h"

namespace chorus {
namespace {

constexpr int32_t kMost = 1 << 24;

void addData(CLI::App& command, SummarizeArgs& args) {
  std::vector<std::string> tasks;
  for (const EvaluationTask& task : evaluationTasks()) tasks.emplace_back(task.name);
  command.add_option("--eval_task", args.eval_task, "What is evaluated; eval_context_ppl: only the texts' perplexity")
      ->check(oneOf(tasks))
      ->capture_default_str();
  command.add_option(
      "--dataset_dir,--dataset_path", args.dataset_dir,
      "Data file (JSON lines, JSON or CSV), or a directory with test.jsonl, .json or .csv, itself or in the "
      "data set's subdirectory (ccdv/cnn_dailymail); columns: article and highlights, input and output, "
      "prompt and canonical_solution, or text, by the task. Default for summarize: eight built-in articles");
  command.add_option("--batch_size", args.batch_size, "Articles that are summarised at once")
      ->check(inRange(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--max_ite", args.max_ite, "Batches")->check(inRange(0, kMost))->capture_default_str();
  command.add_option("--output_len,--max_output_len", args.output_len, "Tokens to generate for each article")
      ->check(inRange(1, kMost))
      ->capture_default_str();
  command.add_option("--max_input_length", args.max_input_length, "Keep this many last tokens of a prompt")
      ->check(inRange(1, kMost))
      ->capture_default_str();
  command
      .add_option("--min_input_length", args.min_input_length, "Skip prompts that do not have more tokens than this")
      ->check(inRange(0, kMost))
      ->capture_default_str();
  command.add_flag("--no_add_special_tokens", args.no_add_special_tokens,
                   "Prompts without the tokenizer's special tokens");
}

void addMetrics(CLI::App& command, SummarizeArgs& args) {
  command.add_flag("--eval_ppl", args.eval_ppl, "Also print the perplexity of prompts and answers");
  command.add_flag("--use_stemmer", args.use_stemmer,
                   "ROUGE of word stems, as rouge-score's use_stemmer; not in summarize.py");
  command.add_flag("--check_accuracy", args.check_accuracy,
                   "Exit with status 1 if a threshold of --test_trt_llm is missed");
  command.add_option("--tensorrt_llm_rouge1_threshold", args.rouge1_threshold, "rouge1 must be greater")
      ->check(inRange(-1e9, 1e9))
      ->capture_default_str();
  command
      .add_option("--tensorrt_llm_ppl_threshold", args.ppl_threshold, "With --eval_ppl: the perplexity must be less")
      ->check(inRange(-1e9, 1e9))
      ->capture_default_str();
  command.add_flag("--estimate_accuracy_std_dev", args.estimate_accuracy_std_dev,
                   "Print mean and standard deviation of the scores instead of a bootstrap estimate");
  command.add_option("--output_dir", args.output_dir, "Directory for the summaries: trtllm.out, hf.out");
}

void addModel(CLI::App& command, SummarizeArgs& args) {
  command.add_flag("--test_trt_llm", args.test_trt_llm, "Evaluate the engine");
  command.add_flag("--test_hf", args.test_hf, "Evaluate --hf_model_dir with transformers, which Python must have");
  command.add_option("--engine_dir", args.engine_dir, "Engine directory")->capture_default_str();
  command.add_option("--hf_model_dir,--model_dir", args.hf_model_dir, "Hugging Face directory");
  command.add_option("--tokenizer_dir", args.tokenizer_dir,
                     "Directory of tokenizer.json or tokenizer.model; default: --hf_model_dir");
  command.add_option("--hf_data_type,--data_type", args.data_type, "Type of the weights with --test_hf")
      ->check(oneOf({"fp32", "fp16", "bf16", "float32", "float16", "bfloat16"}))
      ->capture_default_str();
  command.add_flag("--hf_device_map_auto", args.hf_device_map_auto, "With --test_hf: transformers chooses the devices");
  command.add_option("--hf_python", args.hf_python, "Python that runs --test_hf; not in summarize.py")
      ->capture_default_str();
  command.add_option("--lora_dir", args.lora_dirs,
                     "Adapters: PEFT or NeMo directories, .nemo files, or directories of lora-convert");
  command
      .add_option("--lora_task_uids", args.lora_task_uids,
                  "One, or one for each article of a batch: an index into --lora_dir, -1 for the base")
      ->check(inRange(-1, 1 << 20));
  command.add_option("--lora_ckpt_source", args.lora_ckpt_source, "hf|nemo; the files themselves say whose they are")
      ->capture_default_str();
}

void addRuntime(CLI::App& command, SummarizeArgs& args) {
  command.add_option("--end_id", args.end_id, "End token; -1: none. Default: the tokenizer's")
      ->check(inRange(-1, 1 << 30));
  command.add_option("--num_return_sequences", args.num_return_sequences, "1 is served")
      ->check(inRange(1, 1))
      ->capture_default_str();
  args.sampling.addTo(command);
  addAttentionWindowFlag(command, args.attention_windows);
  command.add_flag("--kv_cache_enable_block_reuse", args.kv_cache_enable_block_reuse,
                   "Reuse KV blocks of equal beginnings");
  command.add_option("--max_tokens_in_paged_kv_cache", args.max_tokens_in_paged_kv_cache, "Tokens in the KV cache")
      ->check(inRange(1, 1 << 30));
  command
      .add_option("--kv_cache_free_gpu_memory_fraction", args.kv_cache_free_gpu_memory_fraction,
                  "Share of the free memory for the KV cache")
      ->check(inRange(1e-6, 1.0));
  command.add_flag("--enable_chunked_context", args.enable_chunked_context,
                   "Long prompts may be computed in several steps");
  command.add_option("--threads", args.threads, "0: all cores")->capture_default_str()->check(inRange(0, 1024));
  addBackendFlags(command, args.backend, args.isa);
  command.add_option("--log_level", args.log_level, "trace|debug|verbose|info|warning|error|internal_error|off")
      ->capture_default_str();
}
}  // namespace

void SummarizeArgs::addTo(CLI::App& command) {
  addModel(command, *this);
  addData(command, *this);
  addMetrics(command, *this);
  addRuntime(command, *this);
  addForeignFlags(command, summarizeFlags(), further);
  command.footer(foreignFlagTable("Further summarize.py flags", "accepted", summarizeFlags()));
}

void SummarizeArgs::check() {
  checkForeignFlags(summarizeFlags(), further);
  if (log_level == "verbose") log_level = "debug";
  if (log_level == "internal_error") log_level = "error";
  if (!test_trt_llm && !test_hf) fail(ErrorCode::kInvalidArgument, "give --test_trt_llm or --test_hf");
  if (test_hf && hf_model_dir.empty()) fail(ErrorCode::kInvalidArgument, "--test_hf needs --hf_model_dir");
  if (tokenizer_dir.empty()) tokenizer_dir = hf_model_dir;
  if (tokenizer_dir.empty()) fail(ErrorCode::kInvalidArgument, "give --hf_model_dir or --tokenizer_dir");
  if (lora_ckpt_source != "hf" && lora_ckpt_source != "nemo") {
    fail(ErrorCode::kUnsupported, "--lora_ckpt_source {}: use hf or nemo", lora_ckpt_source);
  }
  if (lora_task_uids.size() > 1 && lora_task_uids.size() != static_cast<size_t>(batch_size)) {
    fail(ErrorCode::kInvalidArgument, "--lora_task_uids: {} given; give one, or {} as --batch_size says",
         lora_task_uids.size(), batch_size);
  }
  for (const int uid : lora_task_uids) {
    if (uid < -1 || uid >= static_cast<int>(lora_dirs.size())) {
      fail(ErrorCode::kInvalidArgument, "--lora_task_uids {}: --lora_dir holds {} adapters (-1 is the base)", uid,
           lora_dirs.size());
    }
  }
  if (sampling.num_beams != 1)
    fail(ErrorCode::kUnsupported, "--num_beams {}: beam search is not served", sampling.num_beams);
  if (!findEvaluationTask(eval_task).scores_answers) {
    output_len = 1;
    eval_ppl = true;
  }
}

}  // namespace chorus
