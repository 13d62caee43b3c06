#include "cli/serve_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/backend_flags.h"
#include "server/serve.h"

namespace chorus {
namespace {

struct ServeArgs {
  server::ServeOptions options;
  std::string logLevel = "info";
};

// NIM writes its levels in capitals and has two more.
std::string logLevelName(std::string level) {
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return std::tolower(c); });
  if (level == "default") return "info";
  if (level == "critical") return "error";
  return level;
}

void runServe(ServeArgs& args) {
  initLogging(logLevelName(args.logLevel));
  server::ServeOptions& options = args.options;
  checkedIsa(options.isa, options.backend);
  if (options.modelDirectory.empty() == options.engineDirectory.empty()) {
    fail(ErrorCode::kInvalidArgument, "give either a Hugging Face directory or --engine_dir with --tokenizer_dir");
  }
  // NIM_SERVED_MODEL_NAME may list several; the first is the one that answers carry.
  options.modelName = options.modelName.substr(0, options.modelName.find(','));
  server::serve(options);
}

}  // namespace

void addServeCommand(CLI::App& app) {
  auto args = std::make_shared<ServeArgs>();
  server::ServeOptions& options = args->options;
  CLI::App* serve = app.add_subcommand("serve", "Serve a model and its adapters over the OpenAI HTTP API");
  const CLI::Range positive(1, 1 << 28);

  serve->add_option("hf_dir", options.modelDirectory,
                    "Hugging Face model directory; converted and built into a cache at the first start");
  serve->add_option("--engine_dir", options.engineDirectory, "Engine directory of chorus build, instead");
  serve->add_option("--tokenizer_dir", options.tokenizerDirectory,
                    "Directory with tokenizer files and generation_config.json; needed with --engine_dir");

  serve->add_option("--host", options.host, "Address to listen on, IPv4 or IPv6")->capture_default_str();
  serve->add_option("--port", options.port, "Port to listen on; 0: any free one, printed at start")
      ->envname("NIM_SERVER_PORT")
      ->capture_default_str();
  serve->add_option("--model_name", options.modelName, "Name of the base model; default: the directory's")
      ->envname("NIM_SERVED_MODEL_NAME");
  serve
      ->add_option("--lora_dir", options.loraDirectory,
                   "Directory of adapters: each subdirectory with an adapter_config.json is served by its name")
      ->envname("NIM_PEFT_SOURCE");
  serve
      ->add_option("--lora_refresh_interval", options.loraRefreshSeconds,
                   "Seconds between looks for new adapters; 0: only at start")
      ->envname("NIM_PEFT_REFRESH_INTERVAL")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();

  serve->add_option("--dtype", options.dtype, "Type of the weights of an engine built from a Hugging Face directory")
      ->check(CLI::IsMember({"auto", "float32", "float16", "bfloat16"}))
      ->capture_default_str();
  CLI::Option* quantize =
      serve->add_option("--quantize", options.quantize, "Quantise the weights of such an engine, round to nearest")
          ->check(CLI::IsMember({"int8", "int4"}));
  serve
      ->add_option("--group_size", options.groupSize,
                   "With --quantize, inputs that share a scale: 32, 64 or 128; 0 or -1: one scale for each output; "
                   "default: that for int8, for int4 the first of 64 and 32 that the model's sizes allow")
      ->check(CLI::IsMember({-1, 0, 32, 64, 128}))
      ->needs(quantize);
  serve
      ->add_option("--max_seq_len", options.maxSeqLen,
                   "Longest prompt plus answer of such an engine; default: the model's")
      ->check(positive);
  serve->add_option("--max_lora_rank", options.maxLoraRank, "Largest adapter rank of such an engine")
      ->envname("NIM_MAX_LORA_RANK")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  serve
      ->add_option("--max_cpu_loras", options.maxCpuLoras,
                   "Adapters of the largest rank that are kept in memory, on every module that the engine allows; of "
                   "smaller ones more; default: 1 GiB of them, a quarter of the free memory at most")
      ->envname("NIM_MAX_CPU_LORAS")
      ->check(positive);
  serve
      ->add_option("--max_gpu_loras", options.maxGpuLoras,
                   "Such adapters that requests running at once may use; default: all that are kept")
      ->envname("NIM_MAX_GPU_LORAS")
      ->check(positive);
  serve->add_option("--cache_dir", options.cacheDirectory,
                    "Where such engines are kept; default: $CHORUS_CACHE_DIR, $XDG_CACHE_HOME/chorus or "
                    "~/.cache/chorus");

  serve->add_option("--max_batch_size", options.maxBatchSize, "Most requests in one step; default: 64 or the engine's")
      ->check(CLI::Range(1, 1 << 20));
  serve->add_option("--max_num_tokens", options.maxNumTokens, "Most tokens in one step; default: 2048 or the engine's")
      ->check(CLI::Range(1, 1 << 20));
  serve->add_option("--kv_cache_max_tokens", options.kvCacheMaxTokens, "Tokens the KV cache holds")->check(positive);
  serve
      ->add_option("--kv_cache_free_memory_fraction", options.kvCacheFreeMemoryFraction,
                   "KV cache as a share of the free memory, unless its tokens are given; default: 0.5")
      ->check(CLI::Range(0.0, 1.0));
  serve->add_option("--threads", options.threads, "Threads that compute; 0: all cores this process may use")
      ->check(CLI::Range(0, 1 << 12))
      ->capture_default_str();
  addBackendFlags(*serve, options.backend, options.isa);

  serve->add_option("--max_queue_size", options.maxQueueSize, "Most waiting requests; further ones are refused (429)")
      ->check(positive)
      ->capture_default_str();
  serve->add_option("--request_timeout", options.requestTimeoutSeconds, "Seconds a request may take; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  serve
      ->add_option("--drain_timeout", options.drainTimeoutSeconds,
                   "Seconds that running requests may take after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  serve->add_option("--log_level", args->logLevel, "trace, debug, info, warning, error or off")
      ->envname("NIM_LOG_LEVEL")
      ->capture_default_str();
  serve->footer("Variables in brackets stand in for flags that are not given.");
  serve->callback([args] { runServe(*args); });
}

}  // namespace chorus
