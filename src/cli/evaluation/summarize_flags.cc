#include "cli/evaluation/summarize_flags.h"

#include <string_view>

namespace chorus {
namespace {

constexpr FlagFate kAccepted = FlagFate::kAccepted;
constexpr FlagFate kRefusedFlag = FlagFate::kRefused;
constexpr std::string_view kNoSpeculation = "speculation is not served";
constexpr std::string_view kNoPromptTuning = "prompt tuning is not served";

constexpr ForeignFlag kSummarizeFlags[] = {
    {"rouge_dir", kAccepted, "text", "", "ROUGE is part of the program"},
    {"dataset_cache_dir", kAccepted, "text", "", "nothing is downloaded"},
    {"tokenizer_type", kAccepted, "text", "", "the tokenizer's files say it"},
    {"use_py_session", kAccepted, "flag", "", "there is one runtime"},
    {"debug_mode", kAccepted, "flag", "", "--log_level debug says more"},
    {"multi_block_mode", kAccepted, "text", "", "kernel choice is the backend's"},
    {"enable_context_fmha_fp32_acc", kAccepted, "flag", "", "accumulators are always float32"},
    {"no_prompt_template", kAccepted, "flag", "", "summarize.py does not read it either"},
    {"streaming", kAccepted, "flag", "", "summaries are read when they are complete"},
    {"streaming_interval", kAccepted, "int", "", "summaries are read when they are complete"},
    {"cross_kv_cache_fraction", kAccepted, "float", "", "no encoder-decoder models here"},
    {"gpu_weights_percent", kRefusedFlag, "float", "1", "GPU only"},
    {"cuda_graph_mode", kRefusedFlag, "flag", "", "GPU only"},
    {"sink_token_length", kRefusedFlag, "int", "0", "StreamingLLM is not served"},
    {"vocab_file", kRefusedFlag, "text", "", "give --tokenizer_dir the directory of tokenizer.model"},
    {"return_all_generated_tokens", kRefusedFlag, "flag", "", "summarize.py refuses it too"},
    {"prompt_table_path", kRefusedFlag, "text", "", kNoPromptTuning},
    {"prompt_tasks", kRefusedFlag, "text", "", kNoPromptTuning},
    {"num_prepend_vtokens", kRefusedFlag, "text", "", kNoPromptTuning},
    {"beam_width_array", kRefusedFlag, "text", "", "beam search is not served"},
    {"draft_target_model_config", kRefusedFlag, "text", "", kNoSpeculation},
    {"prompt_lookup_config", kRefusedFlag, "text", "", kNoSpeculation},
    {"medusa_choices", kRefusedFlag, "text", "", kNoSpeculation},
    {"eagle_choices", kRefusedFlag, "text", "", kNoSpeculation},
    {"eagle_posterior_threshold", kRefusedFlag, "float", "", kNoSpeculation},
    {"eagle_use_dynamic_tree", kRefusedFlag, "flag", "", kNoSpeculation},
    {"eagle_dynamic_tree_max_top_k", kRefusedFlag, "int", "", kNoSpeculation},
    {"lookahead_config", kRefusedFlag, "text", "", kNoSpeculation},
};
}  // namespace

std::span<const ForeignFlag> summarizeFlags() { return kSummarizeFlags; }

}  // namespace chorus
