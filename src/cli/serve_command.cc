#include "cli/serve_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "cli/backend_flags.h"
#include "cli/config_file.h"
#include "cli/effective_configuration.h"
#include "cli/flag_values.h"
#include "cli/lora_modules.h"
#include "cli/nim_variables.h"
#include "cli/variable_names.h"
#include "convert/sources/sources.h"
#include "kernels/input_format.h"
#include "server/access/token_bucket.h"
#include "server/serve.h"

namespace chorus {
namespace {

struct ServeArgs {
  server::ServeOptions options;
  std::vector<std::string> lora_dirs, lora_modules;
  std::string log_level = "info";
  std::string config_path;
  ConfigFile config;
  std::vector<const char*> words;  // of the command line
  std::string log_format = "text";
};

CLI::Validator namedDirectory() {
  return CLI::Validator(
      [](std::string& input) -> std::string {
        try {
          input = namedAdapterPath(input);
        } catch (const Error& error) {
          return error.what();
        }
        return "";
      },
      "NAME=PATH");
}

// NIM writes its log levels in capitals and has two that this server lacks.
std::string logLevelName(std::string level) {
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return std::tolower(c); });
  if (level == "default") return "info";
  if (level == "critical") return "error";
  return level;
}

// NIM's variable is 1 or true for lines of JSON, 0 or false for text.
std::string formatName(std::string format) {
  std::transform(format.begin(), format.end(), format.begin(), [](unsigned char c) { return std::tolower(c); });
  if (format == "1" || format == "true") return "json";
  return format == "0" || format == "false" ? "text" : format;
}

// NIM writes "None" for its default interval, which means never.
std::string neverAsZero(std::string interval) {
  const std::string_view none = "none";
  const bool never = std::equal(interval.begin(), interval.end(), none.begin(), none.end(),
                                [](unsigned char a, char b) { return std::tolower(a) == b; });
  return never ? "0" : interval;
}

// A path that is not there, such as hf://org/model, which other servers download. The flag is in the message, so that
// it becomes the variable that gave the value. path: may be NAME=PATH for an adapter.
void checkIsThere(const char* flag, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return;
  if (path.find("://") != std::string::npos) {
    fail(ErrorCode::kInvalidArgument, "{} {}: nothing is downloaded; give a local directory or file", flag, path);
  }
  if (std::string_view(flag) == "--model") {
    fail(ErrorCode::kNotFound, "{} {}: {}", flag, path, missingModelText(path));
  }
}

// NIM_SSL_MODE asks for TLS, so the files must be given, by NIM's variables or otherwise.
void checkSslFiles(const server::ServeOptions& options) {
  const std::string mode = nimSslMode();
  if ((mode == "tls" || mode == "mtls") && options.tls_cert_file.empty()) {
    fail(ErrorCode::kInvalidArgument, "NIM_SSL_MODE: it needs NIM_SSL_CERTS_PATH and NIM_SSL_KEY_PATH");
  }
  if (mode == "mtls" && options.tls_client_ca_file.empty()) {
    fail(ErrorCode::kInvalidArgument, "NIM_SSL_MODE: MTLS needs NIM_SSL_CA_CERTS_PATH");
  }
}

void runServe(ServeArgs& args, const std::string& configuration) {
  server::ServeOptions& options = args.options;
  options.log_json = args.log_format == "json";
  initLogging(logLevelName(args.log_level), options.log_json ? LogFormat::kJson : LogFormat::kText);
  checkedIsa(options.isa, options.backend);
  for (const char* variable : {"CHORUS_API_KEY", "CHORUS_API_KEYS_FILE", "CHORUS_TLS_CERT_FILE", "CHORUS_TLS_KEY_FILE",
                               "CHORUS_TLS_CLIENT_CA_FILE"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value == '\0') fail(ErrorCode::kInvalidArgument, "{}: it must not be empty", variable);
  }
  if (options.model_directory.empty() && options.engine_directory.empty()) {
    fail(ErrorCode::kInvalidArgument, "give either a model or --engine_dir with --tokenizer_dir");
  }
  if (!options.model_directory.empty() && !options.engine_directory.empty()) {
    fail(ErrorCode::kInvalidArgument, "--model and --engine_dir are both given; use one of them");
  }
  if (!options.model_directory.empty()) checkIsThere("--model", options.model_directory);
  for (const std::string& place : args.lora_dirs) checkIsThere("--lora_dir", place);
  if (options.group_size && options.quantize.empty()) {
    fail(ErrorCode::kInvalidArgument, "--group_size needs --quantize");
  }
  for (std::string& place : args.lora_dirs) options.lora_directories.emplace_back(std::move(place), "--lora_dir");
  for (std::string& place : args.lora_modules)
    options.lora_directories.emplace_back(std::move(place), "--lora_modules");
  // NIM_SERVED_MODEL_NAME may list several names; responses use the first.
  options.model_name = options.model_name.substr(0, options.model_name.find(','));
  checkNimVariables(environ);
  checkSslFiles(options);
  infoLines(configuration);
  server::serve(options);
}

// An empty key or file, for example from a variable of the shell that is not set, must not mean that no key is needed,
// or no TLS.
CLI::Validator notEmpty() {
  return {[](std::string& value) { return std::string(value.empty() ? "it must not be empty" : ""); }, ""};
}

void addTlsFiles(CLI::App& serve, server::ServeOptions& options) {
  serve
      .add_option("--tls_cert_file", options.tls_cert_file,
                  "PEM file with the server's certificate and the chain that signs it: the server speaks HTTPS. Read "
                  "again, with the other two files, when one of them changes and on SIGHUP")
      ->check(notEmpty());
  serve.add_option("--tls_key_file", options.tls_key_file, "PEM file with the private key of --tls_cert_file")
      ->check(notEmpty());
  serve
      .add_option("--tls_client_ca_file", options.tls_client_ca_file,
                  "PEM file with authorities: every client needs a certificate that one of them has signed")
      ->check(notEmpty());
}

// Three flags: --PREFIXlimit_requests_per_minute, and the same for tokens and concurrent requests.
void addUsageLimits(CLI::App& serve, const std::string& prefix, const std::string& whose,
                    server::LimitSettings& limits) {
  const auto add = [&](const char* name, std::optional<int64_t>& value, const std::string& help) {
    serve.add_option("--" + prefix + "limit_" + name, value, help)
        ->check(inRange(int64_t{0}, server::TokenBucket::kMaxPerMinute));
  };
  add("requests_per_minute", limits.requests_per_minute,
      "Most requests for an answer per minute of " + whose +
          "; further ones are refused (429); 0: no limit. --api_keys_file may have others");
  add("tokens_per_minute", limits.tokens_per_minute,
      "Most tokens of prompts and answers per minute of " + whose +
          ". A prompt counts when its request is accepted, an answer while it is generated");
  add("concurrent_requests", limits.concurrent_requests,
      "Most requests for an answer at once of " + whose + ", those that wait included");
}

// Limits on what clients may use.
void addClientLimits(CLI::App& serve, server::ServeOptions& options) {
  addUsageLimits(serve, "", "each client: an API key or, without keys, an address", options.client_limits);
  addUsageLimits(serve, "adapter_", "each adapter, of all clients together", options.adapter_limits);
  serve
      .add_option("--max_connections", options.max_connections,
                  "Most connections; beyond them idle ones are closed, and 32 more may ask for the server's health")
      ->check(inRange(1, 1 << 20))
      ->capture_default_str();
  serve
      .add_option("--max_connections_per_client", options.max_connections_per_client,
                  "Most connections of one client: an IPv4 address or an IPv6 /64 prefix; not of trusted proxies")
      ->check(inRange(1, 1 << 20))
      ->capture_default_str();
  serve
      .add_option("--http_memory", options.http_memory_mib,
                  "MiB for request bodies, parsed requests and unread answers; one client may hold a quarter of it")
      ->check(inRange(16, 1 << 20))
      ->capture_default_str();
  serve
      .add_option("--min_read_rate", options.min_read_rate,
                  "Lowest rate at which a client must read a waiting answer, in bytes per second, on average after 30 "
                  "s; 0: no limit")
      ->check(inRange(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  serve
      .add_option("--cors_origins", options.cors_origins,
                  "Origins whose web pages may send requests, separated by commas, or *; default: none")
      ->delimiter(',');
  serve
      .add_option("--trusted_proxies", options.trusted_proxies,
                  "Addresses of proxies, separated by commas, whose X-Forwarded-For names the client")
      ->delimiter(',');
  serve
      .add_option("--intake_threads", options.intake_threads,
                  "Threads that prepare requests, besides a reserve for requests of up to 64 KiB; one of several "
                  "takes only such requests too. No client occupies all threads")
      ->check(inRange(1, 256))
      ->capture_default_str();
  serve
      .add_option("--intake_timeout", options.intake_timeout_seconds,
                  "Seconds that the preparation of a request may take: JSON, chat template, tokenizing")
      ->check(inRange(0.001, 1e6))
      ->capture_default_str();
  serve
      .add_option("--intake_work_limit", options.intake_work_limit,
                  "Most work to prepare one request, in bytes: a plain pass over N bytes of text costs N")
      ->check(inRange(int64_t{1}, int64_t{1} << 60))
      ->capture_default_str();
  CLI::Option* key = markSecret(serve.add_option(
      "--api_key", options.api_key,
      "API key that every request must have, except those for the page and the server's health; better given by the "
      "variable, because other users of the machine see the flags of a process"));
  key->check(notEmpty());
  serve
      .add_option(
          "--api_keys_file", options.api_keys_file,
          "YAML file of several API keys with the adapters that each may use (docs/security.md); read again when "
          "it changes")
      ->check(notEmpty())
      ->excludes(key);
  serve.add_flag("--trust_request_templates", options.trust_request_templates,
                 "Take chat templates from requests; without it a request may only name one of the model's");
}

}  // namespace

void addServeCommand(CLI::App& app, std::span<const char* const> words) {
  auto args = std::make_shared<ServeArgs>();
  args->words.assign(words.begin(), words.end());
  server::ServeOptions& options = args->options;
  CLI::App* serve = app.add_subcommand("serve", "Serve a model and its adapters over the OpenAI HTTP API");
  const CLI::Validator positive = inRange(1, 1 << 28);

  serve->add_option("hf_dir,--model", options.model_directory,
                    "The model: a Hugging Face directory or another source of docs/sources.md; converted and built "
                    "into a cache at the first start");
  serve->add_option("--engine_dir", options.engine_directory, "Engine directory of chorus build, instead");
  serve->add_option("--tokenizer_dir", options.tokenizer_directory,
                    "Directory with tokenizer files and generation_config.json; needed with --engine_dir");

  serve->add_option("--host", options.host, "Address to listen on, IPv4 or IPv6")->capture_default_str();
  serve->add_option("--port", options.port, "Port to listen on; 0: any free one, printed at start")
      ->check(inRange(0, 65535))
      ->capture_default_str();
  addTlsFiles(*serve, options);
  serve->add_option("--model_name", options.model_name, "Name of the base model; default: the directory's");
  serve
      ->add_option(
          "--lora_dir", args->lora_dirs,
          "Directory of adapters: each subdirectory with an adapter_config.json or a .nemo file is served by "
          "its name. Or one adapter: its directory or .nemo file, served by its name, or NAME=PATH. May be given "
          "several times")
      ->allow_extra_args(false);
  serve
      ->add_option("--lora_modules", args->lora_modules,
                   "Adapters in vLLM's way, NAME=PATH or a JSON object of name and path ...: the same as a --lora_dir "
                   "for each")
      ->transform(namedDirectory());
  serve->add_flag(
      "--enable_admin", options.enable_admin,
      "Serve the routes that list, load and unload adapters; with API keys, only for keys with admin rights");
  serve
      ->add_option("--lora_allowed_roots", options.lora_allowed_roots,
                   "With --enable_admin, directories beneath which adapters may be loaded by path, besides the "
                   "directories of adapters of --lora_dir")
      ->delimiter(',');
  serve->add_option("--lora_upload_dir", options.lora_upload_dir,
                    "With --enable_admin, where adapters that clients upload are kept until the server ends; made if "
                    "there is none. Without it uploads are refused");
  serve
      ->add_option("--lora_upload_limit", options.lora_upload_limit_mib,
                   "MiB of one uploaded adapter; it also has to fit into a client's share of --http_memory")
      ->check(inRange(1, 1 << 20))
      ->capture_default_str();
  serve
      ->add_option("--lora_upload_space", options.lora_upload_space_mib,
                   "MiB of all uploaded adapters that are kept: those that are served, and earlier contents of them")
      ->check(inRange(1, 1 << 24))
      ->capture_default_str();
  serve
      ->add_option("--lora_refresh_interval", options.lora_refresh_seconds,
                   "Seconds between scans for new adapters; 0 or None: scan only at start")
      ->transform(neverAsZero)
      ->check(inRange(0, 1 << 24))
      ->capture_default_str();
  serve
      ->add_option("--lora_refresh", options.lora_refresh,
                   "What a scan does; add: it adds new adapters, replace: it also replaces adapters whose content has "
                   "changed, sync: it also removes adapters whose directory is missing")
      ->check(oneOf({"add", "replace", "sync"}))
      ->capture_default_str();
  serve
      ->add_option("--lora_dir_links", options.lora_dir_links,
                   "Where links in --lora_dir may lead; inside: to other files of the same adapter, follow: anywhere")
      ->check(oneOf({"inside", "follow"}))
      ->capture_default_str();
  serve
      ->add_option("--trust_adapter_text", options.trust_adapter_text,
                   "Whether an adapter may have its own tokenizer or chat template; off refuses such adapters, unless "
                   "the files are the base model's")
      ->check(oneOf({"on", "off"}))
      ->default_str("on");
  serve
      ->add_option("--adapter_text_memory", options.adapter_text_memory_mib,
                   "MiB that the tokenizers and templates of all adapters may take; default: 1024, an eighth of the "
                   "free memory at most")
      ->check(inRange(0, 1 << 24));

  serve->add_option("--dtype", options.dtype, "Type of the weights of an engine built from a Hugging Face directory")
      ->check(oneOf({"auto", "float32", "float16", "bfloat16"}))
      ->capture_default_str();
  serve
      ->add_option("--quantize", options.quantize,
                   "Quantise the weights of an engine built from a Hugging Face directory, round to nearest")
      ->check(oneOf({"int8", "int4"}));
  serve
      ->add_option("--group_size", options.group_size,
                   "With --quantize, inputs that share a scale: 32, 64 or 128; 0 or -1: one scale for each output; "
                   "default: that for int8, for int4 the first of 64 and 32 that the model's sizes allow")
      ->check(oneOf({-1, 0, 32, 64, 128}));
  serve
      ->add_option("--activations", options.activations,
                   "Integers to which a quantised model's linears round their inputs in every step. int16, int8: every "
                   "128 inputs of a row, or group if that is smaller, share a scale. int8_per_token: all inputs of a "
                   "row share one; for int8 weights with one scale for each output; faster on AMX, but can be less "
                   "exact. Default: as "
                   "a checkpoint's quant_algo says, else int16")
      ->check(oneOf(kInputFormatNames));
  serve
      ->add_option("--max_seq_len", options.max_seq_len,
                   "Longest prompt plus answer of an engine built from a Hugging Face directory; default: the model's")
      ->check(positive);
  serve
      ->add_option(
          "--max_lora_rank", options.max_lora_rank,
          "Largest adapter rank of an engine built from a Hugging Face directory, by default 64; with --engine_dir at "
          "most the engine's own. --max_cpu_loras and --max_gpu_loras count adapters of this rank")
      ->check(inRange(1, 1 << 16));
  serve
      ->add_option("--max_cpu_loras", options.max_cpu_loras,
                   "Memory that keeps adapters, counted in adapters of the largest rank on every module that the "
                   "engine allows; smaller ones take less; default: 1 GiB, a quarter of the free memory at most")
      ->check(positive);
  serve
      ->add_option(
          "--max_gpu_loras", options.max_gpu_loras,
          "Adapters of the largest rank that requests running at once may use; default: all that --max_cpu_loras keeps")
      ->check(positive);
  serve
      ->add_option("--lora_load_memory", options.lora_load_memory_mib,
                   "MiB of memory for adapters' files while they are read and converted; one adapter may take three "
                   "quarters of it; default: twice an adapter of the largest rank in float32, or what "
                   "--max_cpu_loras keeps, up to 1 GiB, if that is more")
      ->check(positive);
  serve
      ->add_option(
          "--adapter_overload", options.adapter_overload,
          "What happens to a request whose adapter does not fit beside those of the requests that run or wait; "
          "reject: status 429 at once, as NIM; wait: it waits in the queue")
      ->check(oneOf({"reject", "wait"}))
      ->capture_default_str();
  addLoraStorageFlag(*serve, options.lora_storage);
  serve->add_option("--cache_dir", options.cache_directory,
                    "Where engines built from Hugging Face directories are kept; default: "
                    "$XDG_CACHE_HOME/chorus or ~/.cache/chorus");

  serve
      ->add_option("--max_batch_size", options.max_batch_size, "Most requests in one step; default: 64 or the engine's")
      ->check(inRange(1, 1 << 20));
  serve
      ->add_option("--max_num_tokens", options.max_num_tokens, "Most tokens in one step; default: 2048 or the engine's")
      ->check(inRange(1, 1 << 20));
  serve->add_option("--kv_cache_max_tokens", options.kv_cache_max_tokens, "Tokens the KV cache holds")->check(positive);
  serve
      ->add_option("--kv_cache_free_memory_fraction", options.kv_cache_free_memory_fraction,
                   "KV cache as a share of the free memory, unless its tokens are given; default: 0.5")
      ->check(inRange(0.0, 1.0));
  addAttentionWindowFlag(*serve, options.attention_windows);
  serve->add_option("--threads", options.threads, "Threads that compute; 0: all cores this process may use")
      ->check(inRange(0, 1 << 12))
      ->capture_default_str();
  addBackendFlags(*serve, options.backend, options.isa);

  serve
      ->add_option("--max_queue_size", options.max_queue_size,
                   "Most waiting requests; further ones are refused (429), also those of one client when it would have "
                   "more waiting than places are free")
      ->check(positive)
      ->capture_default_str();
  serve
      ->add_option("--queue_timeout", options.queue_timeout_seconds,
                   "Seconds that a request may wait until it begins to run; then it is refused (503). 0: no limit. A "
                   "client may ask for less with the header x-request-timeout-ms")
      ->check(inRange(0.0, 1e6))
      ->capture_default_str();
  serve
      ->add_option("--fairness", options.fairness,
                   "Which waiting request runs next; turns: one of the client that runs the fewest; weighted: one of "
                   "the client that was served the fewest tokens for its weight; weighted_adapters: of the adapter. "
                   "--api_keys_file has the weights")
      ->check(oneOf({"turns", "weighted", "weighted_adapters"}))
      ->capture_default_str();
  serve
      ->add_option("--max_choices", options.max_choices,
                   "Most choices of one request: n or best_of, times the number of its prompts; more are refused "
                   "(400). Up to 1024 prompts with one choice each are allowed")
      ->check(inRange(1, 1024))
      ->capture_default_str();
  serve
      ->add_option("--kv_reuse_scope", options.kv_reuse_scope,
                   "Which requests may take over KV blocks that others computed: those of one client; of one adapter, "
                   "and without an adapter of one client; or all. default: all")
      ->check(oneOf({"client", "adapter", "all"}));
  serve->add_option("--request_timeout", options.request_timeout_seconds, "Seconds a request may take; 0: no limit")
      ->check(inRange(0.0, 1e6))
      ->capture_default_str();
  serve
      ->add_option(
          "--drain_timeout", options.drain_timeout_seconds,
          "Seconds after SIGTERM or SIGINT and --drain_delay in which running requests may finish and the server ends; "
          "3 s before their end, or half of them if that is less, it cancels what still runs")
      ->check(inRange(0.0, 1e6))
      ->capture_default_str();
  serve
      ->add_option("--drain_delay", options.drain_delay_seconds,
                   "Seconds after SIGTERM or SIGINT in which the server still takes requests but is not ready, so that "
                   "proxies send theirs elsewhere; --drain_timeout begins after them")
      ->check(inRange(0.0, 1e6))
      ->capture_default_str();
  addClientLimits(*serve, options);
  serve->add_option("--page", options.page, "Whether / is a page for trying the adapters in a browser")
      ->check(oneOf({"on", "off"}))
      ->default_str("on");
  serve->add_option("--log_level", args->log_level, "trace, debug, info, warning, error or off; NIM's names too")
      ->capture_default_str();
  serve
      ->add_option("--log_format", args->log_format,
                   "text, or json: one object per line with timestamp, level and message; 1 and true stand for json, "
                   "0 and false for text")
      ->transform(formatName)
      ->check(oneOf({"text", "json"}))
      ->capture_default_str();
  serve
      ->add_option("--access_log", options.access_log,
                   "Whether each request is logged in one line when it is answered; default: on with --log_format json")
      ->check(oneOf({"on", "off"}));
  serve
      ->add_option("--metrics_max_adapters", options.metrics_max_adapters,
                   "Models and adapters that have metrics of their own; the others are counted together as `other`")
      ->check(inRange(0, 1 << 16))
      ->capture_default_str();
  serve->add_option("--config", args->config_path,
                    "YAML file with values for flags that neither the command line nor a variable gives; its keys are "
                    "the flags' names without dashes, lists are for flags that may be given several times");
  addNimVariables(*serve);
  addVariableNames(*serve, "CHORUS_");
  serve->preparse_callback([args, serve](size_t) { chooseVariables(*serve, args->words); });
  serve->footer("Variables in brackets stand in for flags that are not given.");
  // Runs when the command's words and variables have been read.
  serve->parse_complete_callback([args, serve] {
    if (args->config_path.empty()) return;
    args->config = ConfigFile(*serve, args->config_path);
    args->config.setMissing(*serve);
  });
  serve->callback([args, serve] {
    try {
      runServe(*args, effectiveConfiguration(*serve, args->config, args->words));
    } catch (const Error& error) {
      throw Error(error.code(), args->config.withPlaces(error.what()));
    }
  });
}

}  // namespace chorus
