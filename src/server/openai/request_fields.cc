#include "server/openai/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "server/errors.h"

namespace chorus::server {
namespace {

constexpr FieldUse kServed = FieldUse::kServed, kInert = FieldUse::kInert, kRefused = FieldUse::kRefused;

constexpr std::string_view kOnlyNull = "[]";
constexpr std::string_view kZero = "[false, 0]";
constexpr std::string_view kOne = "[1]";
constexpr std::string_view kOff = "[false, 0, -1]";
constexpr std::string_view kNoneOrAuto = R"(["none", "auto"])";

constexpr std::string_view kChooseAdapter = "choose the adapter with 'model'";
constexpr std::string_view kComposeAdapters = "choose the adapter with 'model', or compose several with 'adapters'";
constexpr std::string_view kNoGrammar = "answers are not constrained to a grammar or schema";
constexpr std::string_view kNoTools = "tool calls are not parsed out of answers";
constexpr std::string_view kTextOnly = "prompts are text or token ids";
constexpr std::string_view kForTemplate = "put it into 'chat_template_kwargs', where the model's template knows it";
constexpr std::string_view kChatAlone = "only chat completions have a chat template";

// Fields of OpenAI, vLLM, NIM, SGLang, TensorRT-LLM, llama.cpp, LoRAX and Text Generation Inference.
constexpr RequestField kCommonFields[] = {
    {"model", kServed},
    {"adapters", kServed},
    {"max_tokens", kServed},
    {"n", kServed},
    {"stream", kServed},
    {"stream_options", kServed},
    {"stream_options.include_usage", kServed},
    {"stop", kServed},
    {"stop_token_ids", kServed},
    {"ignore_eos", kServed},
    {"include_stop_str_in_output", kServed},
    {"skip_special_tokens", kServed},
    {"add_special_tokens", kServed},
    {"logprobs", kServed},
    {"temperature", kServed},
    {"top_p", kServed},
    {"top_k", kServed},
    {"min_p", kServed},
    {"seed", kServed},
    {"presence_penalty", kServed},
    {"frequency_penalty", kServed},
    {"repetition_penalty", kServed},
    {"no_repeat_ngram_size", kServed},
    {"min_tokens", kServed},
    {"logit_bias", kServed},
    {"bad_words", kServed},
    {"cache_salt", kServed},

    // Fields about who sends the request, for what purpose, and where it should run.
    {"user", kInert},
    {"metadata", kInert},
    {"store", kInert},
    {"service_tier", kInert},
    {"safety_identifier", kInert},
    {"prompt_cache_key", kInert},
    {"prompt_cache_options", kInert},
    {"prompt_cache_retention", kInert},
    {"request_id", kInert},
    {"rid", kInert},
    {"session_id", kInert},
    {"custom_labels", kInert},
    {"conversation_params", kInert},
    {"scheduling_params", kInert},
    {"routed_dp_rank", kInert},
    {"data_parallel_rank", kInert},
    {"disagg_prefill_dp_rank", kInert},
    {"id_slot", kInert},
    {"slot_id", kInert},
    {"cache_prompt", kInert},
    {"n_keep", kInert},
    {"n_cache_reuse", kInert},
    {"ngram_corpus_id", kInert},
    {"stream_interval", kInert},
    {"stream_options.include_obfuscation", kInert},
    // Settings of features that have a switch of their own, which is refused.
    {"guided_decoding_backend", kInert},
    {"guided_whitespace_pattern", kInert},
    {"grammar_triggers", kInert},
    {"preserved_tokens", kInert},
    {"truncation_side", kInert},
    {"routed_experts_start_len", kInert},
    {"routed_experts_prompt_start", kInert},
    {"repeat_last_n", kInert},
    {"dynatemp_exponent", kInert},
    {"dry_base", kInert},
    {"dry_allowed_length", kInert},
    {"dry_penalty_last_n", kInert},
    {"dry_sequence_breakers", kInert},
    {"xtc_threshold", kInert},
    {"mirostat_tau", kInert},
    {"mirostat_eta", kInert},
    {"adaptive_decay", kInert},
    // Fields that matter only for images, other routes or slow tokenizers.
    {"images_config", kInert},
    {"media_io_kwargs", kInert},
    {"mm_processor_kwargs", kInert},
    {"return_mm_kwargs", kInert},
    {"return_token_offsets", kInert},
    {"spaces_between_special_tokens", kInert},

    {"lora_request", kRefused, kChooseAdapter},
    {"lora", kRefused, kComposeAdapters},
    {"lora_name", kRefused, kChooseAdapter},
    {"lora_path", kRefused, kChooseAdapter, R"([false, "", [], {}, [null]])"},
    {"lora_dir", kRefused, kChooseAdapter},
    {"lora_id", kRefused, kChooseAdapter},
    {"adapter", kRefused, kChooseAdapter},
    {"adapter_id", kRefused, kChooseAdapter},
    {"adapter_source", kRefused, kChooseAdapter},
    {"adapter_parameters", kRefused, kComposeAdapters},
    {"merged_adapters", kRefused, kComposeAdapters},

    {"response_format", kRefused, kNoGrammar, R"([{}, {"type": "text"}])"},
    {"structured_outputs", kRefused, kNoGrammar},
    {"structural_tag", kRefused, kNoGrammar},
    {"guided_json", kRefused, kNoGrammar, kOnlyNull},
    {"guided_regex", kRefused, kNoGrammar},
    {"guided_choice", kRefused, kNoGrammar},
    {"guided_grammar", kRefused, kNoGrammar},
    {"grammar", kRefused, kNoGrammar},
    {"grammar_lazy", kRefused, kNoGrammar},
    {"json_schema", kRefused, kNoGrammar, R"(["", false])"},
    {"regex", kRefused, kNoGrammar},
    {"ebnf", kRefused, kNoGrammar},
    {"stop_regex", kRefused, "use 'stop'"},

    {"nvext.guided_json", kRefused, kNoGrammar, kOnlyNull},
    {"nvext.guided_regex", kRefused, kNoGrammar},
    {"nvext.guided_choice", kRefused, kNoGrammar},
    {"nvext.guided_grammar", kRefused, kNoGrammar},
    {"nvext.top_k", kRefused, "use 'top_k'", kOnlyNull},
    {"nvext.repetition_penalty", kRefused, "use 'repetition_penalty'", kOne},
    {"nvext.ignore_eos", kRefused, "use 'ignore_eos'"},
    {"nvext.*", kRefused},

    {"tools", kRefused, kNoTools, R"([false, "", [], {}])", "tool_choice"},
    {"tool_choice", kRefused, kNoTools, kNoneOrAuto},
    {"functions", kRefused, kNoTools, R"([false, "", [], {}])", "function_call"},
    {"function_call", kRefused, kNoTools, kNoneOrAuto},

    {"repeat_penalty", kRefused, "use 'repetition_penalty'", kOne},
    {"n_predict", kRefused, "use 'max_tokens'", "[-1]"},
    {"max_new_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"max_output_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"n_cmpl", kRefused, "use 'n'", kOne},
    {"n_probs", kRefused, "use 'logprobs'", kZero},
    {"logprob_token_ids", kRefused},
    {"prompt_logprobs", kRefused, "'logprobs' and 'echo' of /v1/completions score the prompt", "[false]"},
    {"extra_key", kRefused, "use 'cache_salt'"},
    {"no_stop_trim", kRefused, "use 'include_stop_str_in_output'"},
    {"detokenize", kRefused, {}, "[true]"},
    {"truncate_prompt_tokens", kRefused, {}, kOnlyNull},
    {"allowed_token_ids", kRefused},
    {"logits_processors", kRefused},
    {"custom_logit_processor", kRefused},
    {"custom_params", kRefused},
    {"vllm_xargs", kRefused},
    {"sampling_params", kRefused, "its members are fields of the request itself"},
    {"samplers", kRefused},
    {"min_keep", kRefused, {}, kZero},
    {"typical_p", kRefused, {}, kOne},
    {"typ_p", kRefused, {}, kOne},
    {"tfs_z", kRefused, {}, kOne},
    {"top_n_sigma", kRefused, {}, kOff},
    {"mirostat", kRefused, {}, kZero},
    {"dynatemp_range", kRefused, {}, kZero},
    {"dry_multiplier", kRefused, {}, kZero},
    {"xtc_probability", kRefused, {}, kZero},
    {"adaptive_target", kRefused, {}, kOff},
    {"watermarking", kRefused},
    {"repetition_detection", kRefused},
    {"thinking_token_budget", kRefused, {}, "[-1]"},
    {"thinking_budget_tokens", kRefused, {}, "[-1]"},
    {"reasoning_budget", kRefused, {}, "[-1]"},
    {"reasoning_budget_tokens", kRefused, {}, "[-1]"},
    {"use_beam_search", kRefused},
    {"length_penalty", kRefused, {}, "[0, 1]"},
    {"early_stopping", kRefused},
    {"priority", kRefused, {}, kZero},
    {"t_max_predict_ms", kRefused, {}, kOff},
    {"n_indent", kRefused, {}, kZero},
    {"prompt_embeds", kRefused, kTextOnly},
    {"image_data", kRefused, kTextOnly},
    {"multimodal_data", kRefused, kTextOnly},
    {"input_prefix", kRefused},
    {"input_suffix", kRefused},
    {"input_extra", kRefused},
    {"moderation", kRefused},
    {"stream_options.continuous_usage_stats", kRefused},

    // Requests for members that answers do not have.
    {"return_tokens_as_token_ids", kRefused},
    {"return_token_ids", kRefused},
    {"return_tokens", kRefused},
    {"return_prompt_text", kRefused},
    {"return_hidden_states", kRefused},
    {"return_routed_experts", kRefused},
    {"return_cached_tokens_details", kRefused},
    {"return_progress", kRefused},
    {"return_perf_metrics", kRefused},
    {"timings_per_token", kRefused},
    {"post_sampling_probs", kRefused},
    {"response_fields", kRefused},

    // Disaggregated serving on two servers, and sessions that a server keeps.
    {"kv_transfer_params", kRefused},
    {"ec_transfer_params", kRefused},
    {"disaggregated_params", kRefused},
    {"bootstrap_host", kRefused},
    {"bootstrap_port", kRefused},
    {"bootstrap_room", kRefused},
    {"session_params", kRefused},
};

constexpr RequestField kCompletionFields[] = {
    {"prompt", kServed},
    {"best_of", kServed},
    {"echo", kServed},

    {"suffix", kRefused},
    {"messages", kRefused, "use /v1/chat/completions"},
    {"max_completion_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"top_logprobs", kRefused, "use 'logprobs'", kZero},
    {"documents", kRefused, kChatAlone},
    {"chat_template", kRefused, kChatAlone},
    {"chat_template_kwargs", kRefused, kChatAlone},
    {"continue_final_message", kRefused, kChatAlone},
    {"reasoning_effort", kRefused, kChatAlone},
};

constexpr RequestField kChatFields[] = {
    {"messages", kServed},
    {"max_completion_tokens", kServed},
    {"top_logprobs", kServed},
    {"documents", kServed},
    {"chat_template", kServed},
    {"chat_template_kwargs", kServed},
    {"add_generation_prompt", kServed},
    {"continue_final_message", kServed},

    {"parallel_tool_calls", kInert},
    {"parse_tool_calls", kInert},
    {"prediction", kInert},
    {"stream_reasoning", kInert},

    {"prompt", kRefused, "use /v1/completions"},
    {"best_of", kRefused, "use 'n'", kOne},
    {"echo", kRefused},
    {"reasoning_effort", kRefused, kForTemplate},
    {"enable_thinking", kRefused, kForTemplate, kOnlyNull},
    {"include_reasoning", kRefused, {}, "[true]"},
    {"separate_reasoning", kRefused},
    {"reasoning_format", kRefused, {}, kNoneOrAuto},
    {"thinking_forced_open", kRefused},
    {"verbosity", kRefused, {}, R"(["medium"])"},
    {"modalities", kRefused, "answers are text", R"([[], ["text"]])"},
    {"audio", kRefused, "answers are text"},
    {"web_search_options", kRefused, {}, kOnlyNull},
};

constexpr RequestField kMessageFields[] = {
    {"role", kServed},
    {"content", kServed},
    {"tool_calls", kServed},
    // The template receives these, and every further member, unchanged.
    {"name", kServed},
    {"tool_call_id", kServed},
    {"refusal", kServed},
    {"reasoning", kServed},
    {"reasoning_content", kServed},
    {"thinking", kServed},

    {"function_call", kRefused, "use 'tool_calls'"},
    {"audio", kRefused, kTextOnly},
    {"prefix", kRefused, "use 'continue_final_message'"},
    {"partial", kRefused, "use 'continue_final_message'"},
};

constexpr RequestField kContentPartFields[] = {
    {"type", kServed},
    {"text", kServed},
    {"refusal", kServed},

    {"cache_control", kInert},
    {"prompt_cache_breakpoint", kInert},

    {"image_url", kRefused, kTextOnly},
    {"video_url", kRefused, kTextOnly},
    {"audio_url", kRefused, kTextOnly},
    {"input_audio", kRefused, kTextOnly},
    {"file", kRefused, kTextOnly},
    {"image_embeds", kRefused, kTextOnly},
};

bool asksForNothing(const RequestField& field, const OrderedJson& value, const FieldReader& object) {
  const OrderedJson harmless = OrderedJson::parse(field.harmless);
  if (std::find(harmless.begin(), harmless.end(), value) != harmless.end()) return true;
  if (field.disabled_by.empty()) return false;
  const OrderedJson* choice = object.find(field.disabled_by);
  return choice != nullptr && *choice == "none";
}

[[noreturn]] void refuse(const RequestField& field, const std::string& name) {
  std::string message = field.instead.empty()
                            ? fmt::format("'{}' is not supported with this value; leave it out.", name)
                            : fmt::format("'{}' is not supported: {}.", name, field.instead);
  throw ApiError::invalid(std::move(message), name, "unsupported_parameter");
}

// Applies a row "parent.*": refuses members of the object `parent` that no row names.
void refuseOthers(const RequestField& field, std::string_view parent, const FieldReader& object,
                  std::span<const RequestField> table) {
  constexpr size_t kShownBytes = 64;
  const OrderedJson* inner = object.find(parent);
  if (inner == nullptr || asksForNothing(field, *inner, object)) return;
  if (!inner->is_object()) refuse(field, object.nameOf(parent));
  for (const auto& [member, value] : inner->items()) {
    const std::string path = fmt::format("{}.{}", parent, member);
    const bool named = std::any_of(table.begin(), table.end(), [&](const auto& row) { return row.name == path; });
    if (!named && !value.is_null() && !asksForNothing(field, value, object)) {
      refuse(field, object.nameOf(path.substr(0, kShownBytes)));
    }
  }
}

void refuseIn(const FieldReader& object, std::span<const RequestField> table) {
  for (const RequestField& field : table) {
    if (field.use != FieldUse::kRefused) continue;
    const size_t dot = field.name.find('.');
    const OrderedJson* value = object.find(field.name.substr(0, dot));
    if (value == nullptr) continue;
    if (dot != std::string_view::npos) {
      const std::string_view parent = field.name.substr(0, dot), member = field.name.substr(dot + 1);
      if (member == "*") {
        refuseOthers(field, parent, object, table);
        continue;
      }
      if (!value->is_object()) continue;
      value = FieldReader(*value).find(member);
      if (value == nullptr) continue;
    }
    if (!asksForNothing(field, *value, object)) refuse(field, object.nameOf(field.name));
  }
}

}  // namespace

std::vector<std::span<const RequestField>> requestFields(FieldOwner owner) {
  switch (owner) {
    case FieldOwner::kCompletion:
      return {kCommonFields, kCompletionFields};
    case FieldOwner::kChat:
      return {kCommonFields, kChatFields};
    case FieldOwner::kMessage:
      return {kMessageFields};
    case FieldOwner::kContentPart:
      return {kContentPartFields};
  }
  return {};
}

void refuseUnservedFields(const FieldReader& object, FieldOwner owner) {
  for (const auto table : requestFields(owner)) refuseIn(object, table);
}

}  // namespace chorus::server
