#include "cli/nim_variables.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ranges>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/arguments.h"

namespace chorus {
namespace {

constexpr std::string_view kOff = "0|false|no|off";
constexpr std::string_view kNoDownload = "nothing is downloaded: models and adapters are local directories";
constexpr std::string_view kNoGpu = "it chooses how a GPU computes";
constexpr std::string_view kNoTools = "tool calls are not served";
constexpr std::string_view kNoReward = "reward models are not served";
constexpr std::string_view kNoSpeculativeDecoding = "speculative decoding is not served";
constexpr std::string_view kNoImages = "images and videos are not served";
constexpr std::string_view kNoOtel = "nothing is sent to a collector; Prometheus reads /v1/metrics";
constexpr std::string_view kOneProcess =
    "a server is one process on one machine; an engine of several ranks comes from chorus build, by --engine_dir";
constexpr std::string_view kHostMemory = "the KV cache is in the host's memory";

constexpr NimVariable flag(std::string_view name, std::string_view of, std::string_view note = "") {
  return {name, NimFate::kFlag, of, "", note};
}
constexpr NimVariable none(std::string_view name, std::string_view note) {
  return {name, NimFate::kNoEffect, "", "", note};
}
constexpr NimVariable refused(std::string_view name, std::string_view off, std::string_view note) {
  return {name, NimFate::kRefused, "", off, note};
}

// The first variable of a flag is the one that pages show for it.
constexpr NimVariable kVariables[] = {
    // Adapters.
    flag("NIM_PEFT_SOURCE", "lora_dir", "a directory; the URL of an entity store is refused"),
    flag("NIM_PEFT_REFRESH_INTERVAL", "lora_refresh_interval", "None means never"),
    flag("NIM_MAX_GPU_LORAS", "max_gpu_loras"),
    flag("NIM_MAX_CPU_LORAS", "max_cpu_loras"),
    flag("NIM_MAX_LORA_RANK", "max_lora_rank"),
    none("NIM_PEFT_API_TIMEOUT_SECS", "adapters are read from a directory"),
    none("NIM_ENABLE_LORA", "adapters are served if NIM_PEFT_SOURCE is set"),
    // The model.
    flag("NIM_MODEL_NAME", "model", "a directory; hf:// and ngc:// are refused, because nothing is downloaded"),
    flag("NIM_MODEL_PATH", "model", "as NIM_MODEL_NAME"),
    flag("NIM_FT_MODEL", "model", "as NIM_MODEL_NAME: the directory of the fine-tuned model"),
    flag("NIM_SERVED_MODEL_NAME", "model_name", "of a list of names, the first one counts"),
    flag("NIM_MAX_MODEL_LEN", "max_seq_len"),
    flag("NIM_CACHE_PATH", "cache_dir"),
    none("NIM_CUSTOM_MODEL_NAME", "engines in the cache are found by their content"),
    refused("NIM_CUSTOM_MODEL", "", "use NIM_FT_MODEL"),
    none("NIM_MODEL_PROFILE", "there are no profiles; --dtype and --quantize choose the weights"),
    none("NIM_MANIFEST_PROFILE", "there are no profiles; --dtype and --quantize choose the weights"),
    none("NIM_MANIFEST_ALLOW_UNSAFE", "there are no profiles"),
    none("NIM_TRUST_REMOTE_CODE", "code of a model is never run"),
    none("NIM_FORCE_TRUST_REMOTE_CODE", "code of a model is never run"),
    none("NIM_TOKENIZER_MODE", "there is one tokenizer"),
    refused("NIM_CHAT_TEMPLATE", "", "put the template into the model's directory, as chat_template.jinja"),
    none("NIM_DISABLE_MODEL_DOWNLOAD", kNoDownload),
    none("NIM_IGNORE_MODEL_DOWNLOAD_FAIL", kNoDownload),
    none("NIM_REPOSITORY_OVERRIDE", kNoDownload),
    none("NIM_PROXY_CONNECTIVITY_TARGETS", kNoDownload),
    none("NIM_OFFLINE_MODE", kNoDownload),
    none("NIM_CACHE_PROBE_TIMEOUT", kNoDownload),
    // Batch and memory.
    flag("NIM_MAX_BATCH_SIZE", "max_batch_size"),
    flag("NIM_MAX_NUM_SEQS", "max_batch_size"),
    flag("NIM_MAX_NUM_BATCHED_TOKENS", "max_num_tokens"),
    flag("NIM_KVCACHE_PERCENT", "kv_cache_free_memory_fraction", "a share of the free memory, from 0 to 1"),
    none("NIM_ENABLE_KV_CACHE_REUSE", "KV blocks are always reused; --kv_reuse_scope says between whom"),
    none("NIM_ENABLE_KV_CACHE_HOST_OFFLOAD", kHostMemory),
    none("NIM_KV_CACHE_HOST_MEM_FRACTION", kHostMemory),
    none("NIM_NUM_KV_CACHE_SEQ_LENS", "--kv_cache_max_tokens sets the size of the KV cache"),
    none("NIM_RELAX_MEM_CONSTRAINTS", "a model that does not fit is refused at start"),
    none("NIM_LOW_MEMORY_MODE", "weights are mapped, not copied"),
    none("NIM_GPU_MEMORY_UTILIZATION", "NIM_KVCACHE_PERCENT sets the size of the KV cache"),
    none("NIM_GPU_MEM_FRACTION", "NIM_KVCACHE_PERCENT sets the size of the KV cache"),
    none("NIM_ENABLE_CHUNKED_PREFILL", "long prompts are always computed in pieces"),
    none("NIM_FORCE_DETERMINISTIC", "an answer never depends on the other requests of its batch"),
    none("NIM_SCHEDULER_POLICY", "sequences are paused and continued as the KV cache requires"),
    none("NIM_STREAM_INTERVAL", "every token is sent when it is generated"),
    none("NIM_DISABLE_CUDA_GRAPH", kNoGpu),
    none("NIM_DISABLE_OVERLAP_SCHEDULING", kNoGpu),
    none("NIM_ENABLE_DP_ATTENTION", kNoGpu),
    none("NIM_COMPILATION_CONFIG", kNoGpu),
    refused("NIM_TENSOR_PARALLEL_SIZE", "1", kOneProcess),
    refused("NIM_PIPELINE_PARALLEL_SIZE", "1", kOneProcess),
    refused("NIM_NUM_COMPUTE_NODES", "1", kOneProcess),
    refused("NIM_MULTI_NODE", kOff, kOneProcess),
    none("NIM_LEADER_ROLE", "a server is one process on one machine"),
    none("NIM_NODE_RANK", "a server is one process on one machine"),
    refused("NIM_DRAFT_MODEL_PATH", "", kNoSpeculativeDecoding),
    refused("NIM_SPECDEC_ARGS", "", kNoSpeculativeDecoding),
    // Requests and answers.
    refused("NIM_ENABLE_AUTO_TOOL_CHOICE", kOff, kNoTools),
    refused("NIM_TOOL_CALL_PARSER", "", kNoTools),
    refused("NIM_TOOL_PARSER_PLUGIN", "", kNoTools),
    none("NIM_GUIDED_DECODING_BACKEND", "requests for guided decoding are refused"),
    refused("NIM_CUSTOM_GUIDED_DECODING_BACKENDS", "", "guided decoding is not served"),
    refused("NIM_REWARD_MODEL", kOff, kNoReward),
    refused("NIM_REWARD_MODEL_STRING", "", kNoReward),
    none("NIM_REWARD_LOGITS_RANGE", kNoReward),
    refused("NIM_ENABLE_BUDGET_CONTROL", kOff, "limits on the tokens of a model's reasoning are not served"),
    none("NIM_ENABLE_PROMPT_LOGPROBS", "a request may always ask for them, by echo and logprobs"),
    none("NIM_MAX_IMAGES_PER_PROMPT", kNoImages),
    none("NIM_MAX_VIDEOS_PER_PROMPT", kNoImages),
    none("NIM_MEDIA_IO_KWARGS", kNoImages),
    refused("NIM_DISABLE_RESPONSES_ROUTE", kOff, "a proxy can refuse /v1/responses"),
    // The server.
    flag("NIM_HTTP_API_HOST", "host"),
    flag("NIM_SERVER_PORT", "port"),
    flag("NIM_HTTP_API_PORT", "port"),
    flag("NIM_CORS_ALLOW_ORIGINS", "cors_origins"),
    none("NIM_CORS_ALLOW_METHODS", "all methods of a route are allowed"),
    none("NIM_CORS_ALLOW_HEADERS", "all headers that a request may have are allowed"),
    none("NIM_CORS_EXPOSE_HEADERS", "all headers that clients use are exposed"),
    none("NIM_CORS_MAX_AGE", "the server chooses it"),
    {"NIM_SSL_MODE", NimFate::kMode, "", "", "DISABLED, TLS or MTLS (certificates of clients too)"},
    {"NIM_SSL_KEY_PATH", NimFate::kFlag, "tls_key_file", "", "if NIM_SSL_MODE is TLS or MTLS", "tls|mtls"},
    {"NIM_SSL_CERTS_PATH", NimFate::kFlag, "tls_cert_file", "", "if NIM_SSL_MODE is TLS or MTLS", "tls|mtls"},
    {"NIM_SSL_CA_CERTS_PATH", NimFate::kFlag, "tls_client_ca_file", "", "if NIM_SSL_MODE is MTLS", "mtls"},
    refused("NIM_HEALTH_PORT", "", "the health routes have the port of the others, --port"),
    none("NIM_HTTP_MAX_WORKERS", "--intake_threads sets the threads that prepare requests"),
    none("NIM_NGINX_DIR", "the server needs no proxy of its own"),
    refused("NIM_MIDDLEWARE_CONFIG_PATH", "", "there is no middleware"),
    refused("NIM_PASSTHROUGH_ARGS", "", "give the flags of chorus serve, or their variables (docs/flags.md)"),
    refused("NIM_ENGINE_ARGS_JSON", "", "give the flags of chorus serve, or their variables (docs/flags.md)"),
    refused("NIM_SAGEMAKER_MODE", kOff,
            "the routes of SageMaker are not served, except /ping and /adapters (--enable_admin)"),
    // Logs and telemetry.
    flag("NIM_LOG_LEVEL", "log_level"),
    flag("NIM_JSONL_LOGGING", "log_format", "1 or true: json; 0 or false: text"),
    none("NIM_DISABLE_LOG_REQUESTS", "prompts and answers are never logged; --access_log logs a line per request"),
    none("NIM_PER_REQ_METRICS_ENABLE", "--access_log logs the times of each request"),
    refused("NIM_ENABLE_OTEL", kOff, kNoOtel),
    refused("NIM_OTEL_TRACES_EXPORTER", "none", kNoOtel),
    refused("NIM_OTEL_METRICS_EXPORTER", "none", kNoOtel),
    none("NIM_OTEL_EXPORTER_OTLP_ENDPOINT", kNoOtel),
    none("NIM_OTEL_SERVICE_NAME", kNoOtel),
    none("NIM_TELEMETRY_MODE", "there is no telemetry"),
    none("NIM_TELEMETRY_ENABLE_LOGGING", "there is no telemetry"),
    refused("NIM_CAPTURE_ENABLE", kOff, "requests are not recorded"),
    none("NIM_CAPTURE_ARGS", "requests are not recorded"),
};

std::string lowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// values: separated by '|'.
bool hasValue(std::string_view values, std::string_view value) {
  return std::ranges::any_of(std::views::split(values, '|'),
                             [&](const auto& one) { return std::string_view(one.begin(), one.end()) == value; });
}

// Names are foreign bytes and may have any length.
std::string shown(std::string_view name) { return printable(std::string(name), 128); }

void warnUnknown(std::string_view name) {
  std::vector<std::string> known;
  for (const NimVariable& variable : kVariables) known.emplace_back(variable.name);
  const std::string nearest = name.size() <= 128 ? nearestName(name, known) : "";
  log::warn("{}: unknown variable, it has no effect{}", shown(name),
            nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

}  // namespace

std::span<const NimVariable> nimVariables() { return kVariables; }

std::string nimSslMode() {
  const char* mode = std::getenv("NIM_SSL_MODE");
  return lowerCase(mode == nullptr ? "" : mode);
}

bool countsNow(const NimVariable& variable) {
  return variable.fate == NimFate::kFlag && (variable.modes.empty() || hasValue(variable.modes, nimSslMode()));
}

void checkNimVariables(const char* const* environment) {
  std::vector<std::string_view> unknown;
  std::vector<const NimVariable*> idle;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (!entry.starts_with("NIM_") || equals == std::string_view::npos || equals + 1 == entry.size()) continue;
    const std::string_view name = entry.substr(0, equals);
    const std::string value = lowerCase(std::string(entry.substr(equals + 1)));
    const auto* const known = std::ranges::find(kVariables, name, &NimVariable::name);
    if (known == std::end(kVariables)) {
      unknown.push_back(name);
    } else if (known->fate == NimFate::kNoEffect || (known->fate == NimFate::kFlag && !countsNow(*known))) {
      idle.push_back(known);
    } else if (known->fate == NimFate::kRefused && !hasValue(known->off, value)) {
      fail(ErrorCode::kUnsupported, "{}: {}", name, known->note);
    } else if (known->fate == NimFate::kMode && !hasValue("disabled|tls|mtls", value)) {
      fail(ErrorCode::kInvalidArgument, "{} {}: use {}", name, shown(entry.substr(equals + 1)), known->note);
    }
  }
  for (const NimVariable* variable : idle) {
    const char* condition = variable->fate == NimFate::kFlag ? "it counts " : "";
    log::info("{}: no effect; {}{}", variable->name, condition, variable->note);
  }
  for (const std::string_view name : unknown) warnUnknown(name);
}

}  // namespace chorus
