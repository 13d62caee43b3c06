#include "cli/run_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "chorus/executor.h"
#include "cli/backend_flags.h"
#include "cli/executor_requests.h"
#include "cli/flag_values.h"
#include "cli/output_files.h"
#include "cli/prompt_files.h"
#include "cli/run_sampling.h"
#include "text/generation_defaults.h"
#include "text/text_codec.h"

namespace chorus {
namespace {

struct RunArgs {
  std::string engine_dir = "engine_outputs", tokenizer_dir, input_file, output_csv, output_npy, output_logits_npy,
              output_log_probs_npy, output_cum_log_probs_npy;
  std::vector<std::string> input_text;
  std::vector<std::string> lora_dirs;
  std::vector<int> lora_task_uids;
  std::vector<int32_t> attention_windows;
  int max_output_len = 0, max_input_length = 0, threads = 0;
  RunSampling sampling;
  std::optional<int> end_id;
  bool apply_chat_template = false;
  std::string lora_ckpt_source = "hf", isa, backend = "cpu", log_level = "warning";
};

struct Row {
  std::string text;  // empty for token files
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;   // generated tokens
  std::vector<float> logits;     // at the last prompt position
  std::vector<float> log_probs;  // one per generated token
  float cum_log_prob = 0;
  std::string error;
  ErrorCode error_code = ErrorCode::kInternal;  // set with `error`
};

std::vector<Row> readRows(const RunArgs& args, const TextCodec* text_codec) {
  std::vector<Row> rows;
  if (!args.input_file.empty()) {
    for (auto& prompt : readTokenFile(args.input_file)) rows.push_back({.prompt = std::move(prompt)});
    return rows;
  }
  if (text_codec == nullptr) fail(ErrorCode::kInvalidArgument, "--input_text needs --tokenizer_dir");
  for (const std::string& text : args.input_text) {
    Row row{.text = text};
    if (args.apply_chat_template) {
      const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", text}}});
      WorkMeter meter;
      row.prompt = text_codec->encode(text_codec->renderChat(messages, {}, meter), false);
    } else {
      row.prompt = text_codec->encode(text, true);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void checkAdapters(const RunArgs& args, size_t rows) {
  if (args.lora_ckpt_source != "hf" && args.lora_ckpt_source != "nemo") {
    fail(ErrorCode::kUnsupported, "--lora_ckpt_source {}: use hf or nemo", args.lora_ckpt_source);
  }
  if (args.lora_task_uids.empty()) {
    if (!args.lora_dirs.empty()) log::warn("no --lora_task_uids: the base answers every prompt");
    return;
  }
  if (args.lora_task_uids.size() != rows) {
    fail(ErrorCode::kInvalidArgument, "--lora_task_uids: {} given for {} prompts", args.lora_task_uids.size(), rows);
  }
  for (const int uid : args.lora_task_uids) {
    if (uid < -1 || uid >= static_cast<int>(args.lora_dirs.size())) {
      fail(ErrorCode::kInvalidArgument, "--lora_task_uids {}: --lora_dir holds {} adapters (-1 is the base)", uid,
           args.lora_dirs.size());
    }
  }
}

// Loads the adapters that prompts use with a request of one token for each, so that all prompts begin in the same step.
// Otherwise the base model's prompts would run ahead while the other prompts' adapters are loading. If an adapter
// cannot be loaded, the prompts that need it report the error.
void loadAdapters(const RunArgs& args, executor::Executor& executor,
                  const std::vector<executor::LoraConfig>& adapters) {
  std::set<int> used(args.lora_task_uids.begin(), args.lora_task_uids.end());
  used.erase(-1);
  std::vector<executor::Request> requests;
  for (const int uid : used) {
    executor::Request request({0}, 1);
    request.setLoraConfig(adapters[static_cast<size_t>(uid)]);
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return;
  executor.awaitResponses(executor.enqueueRequests(requests));
  executor.getLatestIterationStats();  // drops these steps from the reported statistics
}

executor::Request makeRequest(const RunArgs& args, const Row& row, size_t index, const std::vector<int32_t>& end_ids,
                              const std::vector<executor::LoraConfig>& adapters, const TextCodec* text_codec) {
  executor::OutputConfig output;
  output.excludeInputFromOutput = true;
  output.returnGenerationLogits = !args.output_logits_npy.empty();
  output.returnLogProbs = !args.output_log_probs_npy.empty() || !args.output_cum_log_probs_npy.empty();
  executor::Request request(row.prompt, args.max_output_len, false, executor::SamplingConfig(), output);
  args.sampling.apply(request, text_codec);
  if (!end_ids.empty()) {
    request.setEndId(end_ids.front());
    request.setExtraEndIds({end_ids.begin() + 1, end_ids.end()});
  }
  if (!args.lora_task_uids.empty() && args.lora_task_uids[index] >= 0) {
    request.setLoraConfig(adapters[static_cast<size_t>(args.lora_task_uids[index])]);
  }
  return request;
}

void collect(executor::Executor& executor, const std::vector<executor::IdType>& ids, std::vector<Row>& rows) {
  for (size_t i = 0; i < ids.size(); ++i) {
    for (bool done = false; !done;) {
      for (const executor::Response& response : executor.awaitResponses(ids[i])) {
        if (response.hasError()) {
          rows[i].error = response.getErrorMsg();
          rows[i].error_code = errorCodeOf(response.getErrorCode());
          done = true;
          continue;
        }
        const executor::Result& result = response.getResult();
        done = result.isFinal;
        if (!result.outputTokenIds.empty()) rows[i].answer = result.outputTokenIds[0];
        if (result.logProbs) rows[i].log_probs = result.logProbs->at(0);
        if (result.cumLogProbs) rows[i].cum_log_prob = result.cumLogProbs->at(0);
        if (result.generationLogits && *result.generationLogits) {
          const auto* first = static_cast<const float*>(result.generationLogits->getData());
          rows[i].logits.assign(first, first + executor.getVocabSize());
        }
      }
    }
  }
}

void report(const std::vector<Row>& rows, const TextCodec* text_codec, executor::Executor& executor) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].error.empty()) continue;
    if (text_codec != nullptr) {
      if (!rows[i].text.empty()) std::printf("Input [Text %zu]: \"%s\"\n", i, rows[i].text.c_str());
      std::printf("Output [Text %zu Beam 0]: \"%s\"\n", i, text_codec->decode(rows[i].answer, true).c_str());
    } else {
      std::printf("Output [Tokens %zu Beam 0]:", i);
      for (const int32_t token : rows[i].answer) std::printf(" %d", token);
      std::printf("\n");
    }
  }
  executor::IterationStats widest;
  for (const executor::IterationStats& stats : executor.getLatestIterationStats()) {
    const auto width = [](const executor::IterationStats& s) {
      return std::pair(s.numContextRequests + s.numGenRequests, s.numAdapters);
    };
    if (width(stats) > width(widest)) widest = stats;
  }
  std::printf("Largest batch: %d requests with %d adapters in one step\n",
              widest.numContextRequests + widest.numGenRequests, widest.numAdapters);
}

void runRun(const RunArgs& args) {
  initLogging(args.log_level);
  const auto isa = checkedIsa(args.isa, args.backend);
  if (args.input_text.empty() == args.input_file.empty()) {
    fail(ErrorCode::kInvalidArgument, "give either --input_text or --input_file");
  }
  std::shared_ptr<const TextCodec> text_codec;
  if (!args.tokenizer_dir.empty()) text_codec = loadTextCodec(args.tokenizer_dir);
  std::vector<Row> rows = readRows(args, text_codec.get());
  // Like TensorRT-LLM's run.py, keeps the end of a prompt that is too long.
  if (args.max_input_length > 0) {
    for (Row& row : rows) {
      const auto keep = static_cast<size_t>(args.max_input_length);
      if (row.prompt.size() > keep) row.prompt.erase(row.prompt.begin(), row.prompt.end() - static_cast<int64_t>(keep));
    }
  }
  checkAdapters(args, rows.size());

  executor::ExecutorConfig config;
  config.setNumThreads(args.threads);
  config.setBackend(args.backend);
  config.setIsa(isa);
  if (!args.attention_windows.empty()) config.getKvCacheConfigRef().setMaxAttentionWindowVec(args.attention_windows);
  executor::Executor executor(args.engine_dir, executor::ModelType::kDECODER_ONLY, config);
  log::info("memory of {}:\n{}", args.engine_dir, executor.getMemoryUse().table);
  const std::vector<executor::LoraConfig> adapters = openAdapters(args.lora_dirs, executor);

  std::vector<int32_t> end_ids;
  if (args.end_id) {
    end_ids = {*args.end_id};
  } else if (text_codec != nullptr) {
    end_ids = readGenerationDefaults(args.tokenizer_dir, text_codec->eosTokenId()).end_ids;
  }
  std::vector<executor::Request> requests;
  for (size_t i = 0; i < rows.size(); ++i) {
    requests.push_back(makeRequest(args, rows[i], i, end_ids, adapters, text_codec.get()));
  }
  loadAdapters(args, executor, adapters);
  collect(executor, executor.enqueueRequests(requests), rows);
  report(rows, text_codec.get(), executor);

  std::vector<std::vector<int32_t>> answers;
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<float>> log_probs;
  std::vector<float> cum_log_probs;
  for (const Row& row : rows) {
    answers.push_back(row.answer);
    logits.push_back(row.logits);
    log_probs.push_back(row.log_probs);
    cum_log_probs.push_back(row.cum_log_prob);
  }
  if (!args.output_npy.empty()) writeTokensNpy(args.output_npy, answers, args.max_output_len);
  if (!args.output_csv.empty()) writeTokensCsv(args.output_csv, answers);
  if (!args.output_logits_npy.empty()) writeLogitsNpy(args.output_logits_npy, logits, executor.getVocabSize());
  if (!args.output_log_probs_npy.empty()) writeLogProbsNpy(args.output_log_probs_npy, log_probs, args.max_output_len);
  if (!args.output_cum_log_probs_npy.empty()) writeCumLogProbsNpy(args.output_cum_log_probs_npy, cum_log_probs);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].error.empty()) fail(rows[i].error_code, "prompt {}: {}", i, rows[i].error);
  }
}
}  // namespace

void addRunCommand(CLI::App& app) {
  auto args = std::make_shared<RunArgs>();
  CLI::App* run = app.add_subcommand("run", "Answer prompts with an engine");
  run->add_option("--engine_dir", args->engine_dir, "Engine directory")->capture_default_str();
  run->add_option("--max_output_len", args->max_output_len, "Tokens to generate for each prompt")
      ->required()
      ->check(inRange(1, 1 << 24));
  run->add_option("--tokenizer_dir", args->tokenizer_dir, "directory with a tokenizer, of any kind in docs/text.md");
  run->add_option("--input_text", args->input_text, "Prompts");
  run->add_flag("--apply_chat_template", args->apply_chat_template, "Each --input_text is a user's chat message");
  run->add_option("--input_file", args->input_file, "Token ids: csv, one prompt a line, or npy int32 [n, longest]");
  run->add_option("--max_input_length", args->max_input_length, "Keep this many last tokens of a prompt; 0: all")
      ->check(inRange(0, 1 << 24));
  run->add_option("--output_npy", args->output_npy, "Generated tokens, int32 [n, 1, max_output_len], -1 after the end");
  run->add_option("--output_csv", args->output_csv, "Generated tokens, one row a line");
  run->add_option("--output_logits_npy", args->output_logits_npy,
                  "Logits of the last prompt position, float32 [n, vocab]");
  run->add_option("--lora_dir", args->lora_dirs,
                  "Adapters: PEFT or NeMo directories, .nemo files, or directories of lora-convert");
  run->add_option("--lora_ckpt_source", args->lora_ckpt_source, "hf|nemo; the files themselves say whose they are")
      ->capture_default_str();
  run->add_option("--lora_task_uids", args->lora_task_uids, "One a prompt: an index into --lora_dir, -1 for the base")
      ->check(inRange(-1, 1 << 20));
  run->add_option("--end_id", args->end_id, "End token; -1: none. Default: the tokenizer's and generation_config's")
      ->check(inRange(-1, 1 << 30));
  run->add_option("--output_log_probs_npy", args->output_log_probs_npy,
                  "Log probabilities of the generated tokens, float32 [n, 1, max_output_len], 0 after the end");
  run->add_option("--output_cum_log_probs_npy", args->output_cum_log_probs_npy,
                  "Sums of the log probabilities, float32 [n, 1]");
  addAttentionWindowFlag(*run, args->attention_windows);
  args->sampling.addTo(*run);
  run->add_option("--threads", args->threads, "0: all cores")->capture_default_str()->check(inRange(0, 1024));
  addBackendFlags(*run, args->backend, args->isa);
  run->add_option("--log_level", args->log_level, "trace|debug|info|warning|error|off")->capture_default_str();
  run->callback([args] { runRun(*args); });
}

}  // namespace chorus
