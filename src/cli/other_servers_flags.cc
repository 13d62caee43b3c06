#include "cli/other_servers_flags.h"

#include <algorithm>
#include <string>

namespace chorus {
namespace {

constexpr std::string_view kUseModel = "use --model, or give the directory after serve";
constexpr std::string_view kUseModelName = "use --model_name";
constexpr std::string_view kUseLengths =
    "use --max_seq_len for one request, and --kv_cache_max_tokens for all together";
constexpr std::string_view kUseRequests = "use --max_batch_size";
constexpr std::string_view kUseTokens =
    "use --max_num_tokens for the tokens of a step, and --max_batch_size for its requests";
constexpr std::string_view kUseThreads = "use --threads";
constexpr std::string_view kUseQuantize = "use --quantize int8 or --quantize int4";
constexpr std::string_view kUseCacheShare = "use --kv_cache_free_memory_fraction, a share of the free memory";
constexpr std::string_view kUseRanks =
    "not needed: one process computes on all cores; for several ranks use --engine_dir with an engine that has them";
constexpr std::string_view kUseTemplate = "put the template into the model's directory, as chat_template.jinja";
constexpr std::string_view kUseLocalModel = "models are not downloaded; give a local directory";
constexpr std::string_view kUseNoGpu = "not needed: the model runs on the CPU";
constexpr std::string_view kUseNoCaching =
    "not needed: KV blocks are always reused; --kv_reuse_scope sets between whom";
constexpr std::string_view kUseNoTools = "tool calls are not served";

constexpr OtherServersFlag kOtherServersFlags[] = {
    // vLLM
    {"enable_lora", "not needed: adapters are served if --lora_dir or --lora_modules is given"},
    {"max_loras", "use --max_gpu_loras"},
    {"max_model_len", "use --max_seq_len"},
    {"max_num_seqs", kUseRequests},
    {"max_num_batched_tokens", "use --max_num_tokens"},
    {"served_model_name", kUseModelName},
    {"gpu_memory_utilization", kUseCacheShare},
    {"tensor_parallel_size", kUseRanks},
    {"pipeline_parallel_size", kUseRanks},
    {"quantization", kUseQuantize},
    {"chat_template", kUseTemplate},
    {"tokenizer", "use --tokenizer_dir"},
    {"download_dir", "not needed: models are not downloaded; --cache_dir is for engines that are built"},
    {"trust_remote_code", "not needed: code of a model is never run"},
    {"device", kUseNoGpu},
    {"enforce_eager", kUseNoGpu},
    {"enable_prefix_caching", kUseNoCaching},
    {"enable_chunked_prefill", "not needed: long prompts are always computed in pieces"},
    {"enable_auto_tool_choice", kUseNoTools},
    {"tool_call_parser", kUseNoTools},
    {"disable_log_requests",
     "not needed: prompts and answers are never logged; --access_log is for a line per request"},
    {"uvicorn_log_level", "use --log_level"},
    {"allowed_origins", "use --cors_origins"},
    {"ssl_keyfile", "use --tls_key_file"},
    {"ssl_certfile", "use --tls_cert_file"},
    {"ssl_ca_certs", "use --tls_client_ca_file"},
    {"-tp", kUseRanks},
    {"-pp", kUseRanks},
    {"-q", kUseQuantize},
    // llama.cpp
    {"ctx_size", kUseLengths},
    {"batch_size", kUseTokens},
    {"parallel", kUseRequests},
    {"cont_batching", "not needed: a request always joins the batch that runs"},
    {"alias", kUseModelName},
    {"lora", "use --lora_dir"},
    {"n_gpu_layers", kUseNoGpu},
    {"gpu_layers", kUseNoGpu},
    {"chat_template_file", kUseTemplate},
    {"jinja", "not needed: the model's chat template is always used"},
    {"metrics", "not needed: /metrics is always served"},
    {"hf_repo", kUseLocalModel},
    {"ssl_key_file", "use --tls_key_file"},
    {"ssl_cert_file", "use --tls_cert_file"},
    {"-m", kUseModel},
    {"-c", kUseLengths},
    {"-t", kUseThreads},
    {"-b", kUseTokens},
    {"-np", kUseRequests},
    {"-cb", "not needed: a request always joins the batch that runs"},
    {"-a", kUseModelName},
    {"-ngl", kUseNoGpu},
    {"-hf", kUseLocalModel},
    // trtllm-serve
    {"kv_cache_free_gpu_memory_fraction", kUseCacheShare},
    {"tp_size", kUseRanks},
    {"pp_size", kUseRanks},
    {"extra_llm_api_options", "use --config, a YAML file of this program's own flags"},
};

}  // namespace

std::span<const OtherServersFlag> otherServersFlags() { return kOtherServersFlags; }

std::string_view adviceForOtherServersFlag(std::string_view name) {
  std::string folded(name);
  if (!folded.empty()) std::replace(folded.begin() + 1, folded.end(), '-', '_');
  const auto* const known = std::ranges::find(kOtherServersFlags, folded, &OtherServersFlag::name);
  return known == std::end(kOtherServersFlags) ? std::string_view() : known->advice;
}

}  // namespace chorus
