#include "cli/build_flags.h"

#include <string_view>

namespace chorus {
namespace {

constexpr std::string_view kPlugin = "auto|float16|float32|bfloat16|enable|disable";
constexpr std::string_view kSwitch = "enable|disable";
constexpr FlagFate kRecorded = FlagFate::kAccepted;
constexpr FlagFate kRefused = FlagFate::kRefused;

constexpr ForeignFlag kFlags[] = {
    {"gpt_attention_plugin", kRecorded, kPlugin, "", "attention is always the fused op"},
    {"bert_attention_plugin", kRecorded, kPlugin, "", "no encoder here"},
    {"gemm_plugin", kRecorded, kPlugin, "", "products are always the packed kernels"},
    {"nccl_plugin", kRecorded, kPlugin, "", "ranks talk by the comm layer"},
    {"moe_plugin", kRecorded, kPlugin, "", ""},
    {"lookup_plugin", kRecorded, kPlugin, "", ""},
    {"context_fmha", kRecorded, kSwitch, "", "context attention is always fused", "disable"},
    {"context_fmha_fp32_acc", kRecorded, kSwitch, "", "accumulators are always float32"},
    {"paged_kv_cache", kRecorded, "enable", "", "the cache is always paged"},
    {"kv_cache_type", kRecorded, "paged", "", "continuous and disabled are not served"},
    {"remove_input_padding", kRecorded, "enable", "", "input is always packed"},
    {"use_paged_context_fmha", kRecorded, kSwitch, "", "chunked context always reads pages"},
    {"enable_xqa", kRecorded, kSwitch, "", "kernel choice is the backend's", "disable"},
    {"disable_xqa", kRecorded, "flag", "", "kernel choice is the backend's", "true"},
    {"multi_block_mode", kRecorded, kSwitch, "", "kernel choice is the backend's", kSwitch},
    {"reduce_fusion", kRecorded, kSwitch, "", ""},
    {"use_fused_mlp", kRecorded, kSwitch, "", "the gated MLP is always fused"},
    {"multiple_profiles", kRecorded, kSwitch, "", "no profiles to tune"},
    {"opt_num_tokens", kRecorded, "int", "", "no profiles to tune"},
    {"profiling_verbosity", kRecorded, "layer_names_only|detailed|none", "", ""},
    {"fast_build", kRecorded, "flag", "", ""},
    {"gather_context_logits", kRecorded, "flag", "", "any request may ask for them"},
    {"gather_generation_logits", kRecorded, "flag", "", "any request may ask for them"},
    {"gather_all_token_logits", kRecorded, "flag", "", "any request may ask for them"},
    {"lora_ckpt_source", kRecorded, "hf|nemo", "", "the files themselves say whose they are"},
    {"build_config", kRefused, "text", "", "give the flags"},
    {"model_config", kRefused, "text", "", "the checkpoint's config.json is read"},
    {"max_multimodal_len", kRefused, "int", "0", "prompt tuning is not served"},
    {"max_prompt_embedding_table_size", kRefused, "int", "0", "prompt tuning is not served"},
    {"max_encoder_input_len", kRefused, "int", "0", "encoder-decoder models are not served"},
    {"speculative_decoding_mode", kRefused, "text", "none", "speculation is not served"},
    {"max_draft_len", kRefused, "int", "0", "speculation is not served"},
    {"streamingllm", kRefused, kSwitch, "disable", "StreamingLLM is not served"},
    {"use_fp8_context_fmha", kRefused, kSwitch, "disable", "GPU only"},
    {"gemm_swiglu_plugin", kRefused, "text", "disable", "GPU only"},
    {"smooth_quant_gemm_plugin", kRefused, "text", "disable", "quantised checkpoints are not served"},
    {"weight_streaming", kRefused, "flag", "", "GPU only"},
    {"weight_sparsity", kRefused, "flag", "", "GPU only"},
    {"strip_plan", kRefused, "flag", "", "GPU only"},
    {"dry_run", kRefused, "flag", "", "GPU only"},
    {"enable_debug_output", kRefused, "flag", "", "GPU only"},
    {"model_cls_file", kRefused, "text", "", "no code is loaded from files"},
    {"model_cls_name", kRefused, "text", "", "no code is loaded from files"},
};

}  // namespace

std::span<const ForeignFlag> buildFlags() { return kFlags; }

}  // namespace chorus
