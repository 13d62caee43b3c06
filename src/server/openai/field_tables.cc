// Fields of OpenAI, Anthropic, vLLM, NIM, SGLang, TensorRT-LLM, llama.cpp, LoRAX and Text Generation Inference.
#include <initializer_list>

#include "server/openai/request_fields.h"

namespace chorus::server {
namespace {

constexpr FieldUse kInert = FieldUse::kInert, kRefused = FieldUse::kRefused;

constexpr std::string_view kOnlyNull = "[]";
constexpr std::string_view kZero = "[false, 0]";
constexpr std::string_view kOne = "[1]";
constexpr std::string_view kOff = "[false, 0, -1]";
constexpr std::string_view kNoneOrAuto = R"(["none", "auto"])";
constexpr std::string_view kNoReasoning = R"([{}, {"effort": null}, {"effort": "none"},
                                              {"effort": null, "summary": null}, {"effort": "none", "summary": null}])";

constexpr std::string_view kChooseAdapter = "choose the adapter with 'model'";
constexpr std::string_view kComposeAdapters = "choose the adapter with 'model', or compose several with 'adapters'";
constexpr std::string_view kNoGrammar = "answers are not constrained to a grammar or schema";
constexpr std::string_view kNoTools = "tool calls are not parsed out of answers";
constexpr std::string_view kTextOnly = "prompts are text or token ids";
constexpr std::string_view kForTemplate = "put it into 'chat_template_kwargs', where the model's template knows it";
constexpr std::string_view kChatAlone = "only chat completions have a chat template";
constexpr std::string_view kStateless = "the server keeps no conversation; send all of it each time";
constexpr std::string_view kTurns = "the last message decides whether a new turn begins";
constexpr std::string_view kNoSchedule = "answers are computed while the client waits";

constexpr bool kRequired = true;

// JSON schemas of values.
constexpr std::string_view kAny = "{}";
constexpr std::string_view kBoolean = R"({"type": "boolean"})";
constexpr std::string_view kInteger = R"({"type": "integer", "format": "int64"})";
constexpr std::string_view kText = R"({"type": "string"})";
constexpr std::string_view kName = R"({"type": "string", "minLength": 1})";
constexpr std::string_view kObject = R"({"type": "object"})";
constexpr std::string_view kToolCalls =
    R"({"type": "array", "items": {"type": "object", "required": ["function"],
                                   "properties": {"function": {"type": "object", "required": ["name"],
                                                               "properties": {"name": {"type": "string"}}}}}})";
constexpr std::string_view kCount = R"({"type": "integer", "minimum": 1, "maximum": 2147483647})";
constexpr std::string_view kNotNegative = R"({"type": "integer", "minimum": 0, "maximum": 2147483647})";
constexpr std::string_view kTopK = R"({"type": "integer", "minimum": -1, "maximum": 2147483647})";
constexpr std::string_view kZeroToOne = R"({"type": "number", "minimum": 0, "maximum": 1})";
constexpr std::string_view kZeroToTwo = R"({"type": "number", "minimum": 0, "maximum": 2})";
constexpr std::string_view kZeroToFive = R"({"type": "integer", "minimum": 0, "maximum": 5})";
constexpr std::string_view kZeroToTwenty = R"({"type": "integer", "minimum": 0, "maximum": 20})";
constexpr std::string_view kPenalty = R"({"type": "number", "minimum": -2, "maximum": 2})";
constexpr std::string_view kRepetitionPenalty = R"({"type": "number", "exclusiveMinimum": 0, "maximum": 100})";
constexpr std::string_view kSalt = R"({"type": "string", "minLength": 1, "maxLength": 1024})";
constexpr std::string_view kLogitBias =
    R"({"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})";
constexpr std::string_view kBadWords =
    R"({"type": "array", "maxItems": 128, "items": {"type": "string", "minLength": 1, "maxLength": 1024}})";
constexpr std::string_view kTokenIds =
    R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}})";
constexpr std::string_view kFewIds =
    R"({"type": "array", "maxItems": 16, "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}})";
constexpr std::string_view kStopList =
    R"({"type": "array", "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 1024}})";
constexpr std::string_view kStops =
    R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1024},
                  {"type": "array", "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 1024}}]})";
constexpr std::string_view kAdapters =
    R"({"type": "array", "minItems": 1, "maxItems": 32,
        "items": {"type": "object", "required": ["name", "weight"],
                  "properties": {"name": {"type": "string", "minLength": 1}, "weight": {"type": "number"}}}})";
constexpr std::string_view kPrompt =
    R"({"anyOf": [{"type": "string"},
                  {"type": "array", "minItems": 1, "maxItems": 1024, "items": {"type": "string"}},
                  {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}},
                  {"type": "array", "minItems": 1, "maxItems": 1024,
                   "items": {"type": "array", "minItems": 1,
                             "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}}]})";
constexpr std::string_view kDocuments = R"({"type": "array", "maxItems": 1024, "items": {"type": "object"}})";
constexpr std::string_view kVariables = R"({"type": "object", "maxProperties": 64})";
constexpr std::string_view kMessages =
    R"({"type": "array", "minItems": 1, "maxItems": 4096, "items": {"$ref": "#/components/schemas/ChatMessage"}})";
constexpr std::string_view kContent =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/ContentPart"}}]})";
constexpr std::string_view kInput =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 4096,
                                       "items": {"$ref": "#/components/schemas/InputItem"}}]})";
constexpr std::string_view kIncluded =
    R"({"type": "array", "items": {"enum": ["message.output_text.logprobs", "reasoning.encrypted_content"]}})";
constexpr std::string_view kInputContent =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/InputPart"}}]})";
constexpr std::string_view kAnthropicMessages =
    R"({"type": "array", "minItems": 1, "maxItems": 4096, "items": {"$ref": "#/components/schemas/AnthropicMessage"}})";
constexpr std::string_view kBlocks =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/ContentBlock"}}]})";

constexpr RequestField served(std::string_view name, std::string_view schema, bool required = false) {
  return {.name = name, .use = FieldUse::kServed, .schema = schema, .required = required};
}

constexpr RequestField kModelFields[] = {
    served("model", kName, kRequired),
    served("adapters", kAdapters),
};

constexpr RequestField kSharedFields[] = {
    served("stream", kBoolean),
    served("stop_token_ids", kFewIds),
    served("ignore_eos", kBoolean),
    served("include_stop_str_in_output", kBoolean),
    served("skip_special_tokens", kBoolean),
    served("temperature", kZeroToTwo),
    served("top_p", kZeroToOne),
    served("top_k", kTopK),
    served("min_p", kZeroToOne),
    served("seed", kInteger),
    served("presence_penalty", kPenalty),
    served("frequency_penalty", kPenalty),
    served("repetition_penalty", kRepetitionPenalty),
    served("no_repeat_ngram_size", kNotNegative),
    served("min_tokens", kNotNegative),
    served("logit_bias", kLogitBias),
    served("bad_words", kBadWords),
    served("cache_salt", kSalt),

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

    {"nvext.guided_json", kRefused, kNoGrammar, kOnlyNull},
    {"nvext.guided_regex", kRefused, kNoGrammar},
    {"nvext.guided_choice", kRefused, kNoGrammar},
    {"nvext.guided_grammar", kRefused, kNoGrammar},
    {"nvext.top_k", kRefused, "use 'top_k'", kOnlyNull},
    {"nvext.repetition_penalty", kRefused, "use 'repetition_penalty'", kOne},
    {"nvext.ignore_eos", kRefused, "use 'ignore_eos'"},
    {"nvext.*", kRefused},

    {"repeat_penalty", kRefused, "use 'repetition_penalty'", kOne},
    {"logprob_token_ids", kRefused},
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
    {"prompt_ignore_length", kRefused, {}, kZero},
    {"top_p_min", kRefused, {}, kZero},
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

    // Requests for members that answers do not have.
    {"return_tokens_as_token_ids", kRefused},
    {"return_token_ids", kRefused},
    {"return_tokens", kRefused},
    {"return_prompt_text", kRefused},
    {"return_hidden_states", kRefused},
    {"return_routed_experts", kRefused},
    {"return_cached_tokens_details", kRefused},
    {"return_progress", kRefused},
    {"return_context_logits", kRefused},
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

constexpr RequestField kTemplateFields[] = {
    served("documents", kDocuments),
    served("chat_template", kText),
    served("chat_template_kwargs", kVariables),
};

constexpr RequestField kOpenAiFields[] = {
    served("n", kCount),
    served("stream_options", kObject),
    served("stream_options.include_usage", kBoolean),
    served("stream_options.continuous_usage_stats", kBoolean),
    served("stop", kStops),
    served("add_special_tokens", kBoolean),
    {"stream_options.include_obfuscation", kInert},
    {"response_format", kRefused, kNoGrammar, R"([{}, {"type": "text"}])"},
    {"stop_regex", kRefused, "use 'stop'"},
    {"tools", kRefused, kNoTools, R"([false, "", [], {}])", "tool_choice"},
    {"tool_choice", kRefused, kNoTools, kNoneOrAuto},
    {"functions", kRefused, kNoTools, R"([false, "", [], {}])", "function_call"},
    {"function_call", kRefused, kNoTools, kNoneOrAuto},
    {"n_predict", kRefused, "use 'max_tokens'", "[-1]"},
    {"max_new_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"max_output_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"n_cmpl", kRefused, "use 'n'", kOne},
    {"n_probs", kRefused, "use 'logprobs'", kZero},
    {"prompt_logprobs", kRefused, "'logprobs' and 'echo' of /v1/completions score the prompt", "[false]"},
};

constexpr RequestField kCompletionFields[] = {
    served("prompt", kPrompt, kRequired),
    served("max_tokens", kNotNegative),
    served("best_of", kCount),
    served("echo", kBoolean),
    served("logprobs", kZeroToFive),

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
    served("messages", kMessages, kRequired),
    served("max_tokens", kCount),
    served("max_completion_tokens", kCount),
    served("logprobs", kBoolean),
    served("top_logprobs", kZeroToTwenty),
    served("add_generation_prompt", kBoolean),
    served("continue_final_message", kBoolean),

    {"parallel_tool_calls", kInert},
    {"parse_tool_calls", kInert},
    {"prediction", kInert},
    {"stream_reasoning", kInert},

    {"prompt", kRefused, "use /v1/completions"},
    {"best_of", kRefused, "use 'n'", kOne},
    {"echo", kRefused},
    {"reasoning_effort", kRefused, kForTemplate, R"(["none"])"},
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
    served("role", kName, kRequired),
    served("content", kContent),
    served("tool_calls", kToolCalls),
    // The template receives these, and every further member, unchanged.
    served("name", kAny),
    served("tool_call_id", kAny),
    served("refusal", kAny),
    served("reasoning", kAny),
    served("reasoning_content", kAny),
    served("thinking", kAny),

    {"function_call", kRefused, "use 'tool_calls'"},
    {"audio", kRefused, kTextOnly},
    {"prefix", kRefused, "use 'continue_final_message'"},
    {"partial", kRefused, "use 'continue_final_message'"},
};

constexpr RequestField kContentPartFields[] = {
    served("type", R"({"enum": ["text", "refusal"]})", kRequired),
    served("text", kText),
    served("refusal", kText),

    {"cache_control", kInert},
    {"prompt_cache_breakpoint", kInert},

    {"image_url", kRefused, kTextOnly},
    {"video_url", kRefused, kTextOnly},
    {"audio_url", kRefused, kTextOnly},
    {"input_audio", kRefused, kTextOnly},
    {"file", kRefused, kTextOnly},
    {"image_embeds", kRefused, kTextOnly},
};

constexpr RequestField kResponseFields[] = {
    served("input", kInput, kRequired),
    served("instructions", kText),
    served("max_output_tokens", kCount),
    served("stop", kStops),
    served("text", kObject),
    served("include", kIncluded),
    served("top_logprobs", kZeroToTwenty),

    {"parallel_tool_calls", kInert},
    {"stream_options", kInert},

    {"text.format", kRefused, kNoGrammar, R"([{}, {"type": "text"}])"},
    {"text.verbosity", kRefused, {}, R"(["medium"])"},
    {"previous_response_id", kRefused, kStateless},
    {"conversation", kRefused, kStateless},
    {"background", kRefused, kNoSchedule},
    {"background_options", kRefused, kNoSchedule},
    {"prompt", kRefused, "use 'input'"},
    {"messages", kRefused, "use 'input'"},
    {"max_tokens", kRefused, "use 'max_output_tokens'", kOnlyNull},
    {"max_completion_tokens", kRefused, "use 'max_output_tokens'", kOnlyNull},
    {"max_new_tokens", kRefused, "use 'max_output_tokens'", kOnlyNull},
    {"n", kRefused, {}, kOne},
    {"reasoning", kRefused, kForTemplate, kNoReasoning},
    {"reasoning_effort", kRefused, kForTemplate, kNoneOrAuto},
    {"response_format", kRefused, kNoGrammar, R"([{}, {"type": "text"}])"},
    {"truncation", kRefused, {}, R"(["disabled"])"},
    {"context_management", kRefused},
    {"max_tool_calls", kRefused, kNoTools, kOnlyNull},
    {"tool_choice", kRefused, kNoTools, kNoneOrAuto},
    {"tools", kRefused, kNoTools, R"([false, "", [], {}])", "tool_choice"},
    {"add_generation_prompt", kRefused, kTurns, "[true]"},
    {"continue_final_message", kRefused, kTurns},
};

constexpr RequestField kInputItemFields[] = {
    served("type", R"({"enum": ["message"]})"),
    served("role", R"({"enum": ["user", "assistant", "system", "developer"]})", kRequired),
    served("content", kInputContent, kRequired),

    {"id", kInert},
    {"status", kInert},
    {"phase", kInert},
};

constexpr RequestField kInputPartFields[] = {
    served("type", R"({"enum": ["input_text", "output_text", "text", "refusal"]})", kRequired),
    served("text", kText),
    served("refusal", kText),

    {"annotations", kInert},
    {"logprobs", kInert},
    {"prompt_cache_breakpoint", kInert},

    {"image_url", kRefused, kTextOnly},
    {"file_id", kRefused, kTextOnly},
    {"file_data", kRefused, kTextOnly},
    {"file_url", kRefused, kTextOnly},
    {"input_audio", kRefused, kTextOnly},
};

constexpr RequestField kAnthropicPromptFields[] = {
    served("messages", kAnthropicMessages, kRequired),
    served("system", kBlocks),

    {"anthropic_version", kInert},
    {"betas", kInert},
    {"cache_control", kInert},
    {"diagnostics", kInert},
    {"inference_geo", kInert},
    {"speed", kInert},
    {"user_profile_id", kInert},
    {"workspace_id", kInert},

    {"prompt", kRefused, "use 'messages'"},
    {"tools", kRefused, kNoTools, R"([false, "", [], {}])", "tool_choice"},
    {"tool_choice", kRefused, kNoTools, R"([{"type": "none"}, {"type": "auto"}])"},
    {"thinking", kRefused, kForTemplate, R"([{"type": "disabled"}])"},
    {"output_config", kRefused, "answers have neither an effort nor a format"},
    {"output_format", kRefused, kNoGrammar},
    {"container", kRefused, kStateless},
    {"context_management", kRefused},
    {"mcp_servers", kRefused, kNoTools},
    {"add_generation_prompt", kRefused, kTurns, "[true]"},
    {"continue_final_message", kRefused, kTurns},
};

constexpr RequestField kAnthropicFields[] = {
    served("max_tokens", kCount, kRequired),
    served("stop_sequences", kStopList),

    {"stream_options", kInert},

    {"stop", kRefused, "use 'stop_sequences'", R"(["", []])"},
    {"max_completion_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"max_output_tokens", kRefused, "use 'max_tokens'", kOnlyNull},
    {"max_tokens_to_sample", kRefused, "use 'max_tokens'", kOnlyNull},
    {"n", kRefused, {}, kOne},
    {"logprobs", kRefused},
    {"top_logprobs", kRefused, {}, kZero},
    {"response_format", kRefused, kNoGrammar, R"([{}, {"type": "text"}])"},
};

constexpr RequestField kAnthropicMessageFields[] = {
    served("role", R"({"enum": ["user", "assistant", "system"]})", kRequired),
    served("content", kBlocks, kRequired),
};

constexpr RequestField kContentBlockFields[] = {
    served("type", R"({"enum": ["text"]})", kRequired),
    served("text", kText, kRequired),

    {"cache_control", kInert},
    {"citations", kInert},

    {"source", kRefused, kTextOnly},
};

constexpr RequestField kTokenizeFields[] = {
    served("model", kText),
    served("prompt", kText),
    served("messages", kMessages),
    served("add_special_tokens", kBoolean),
    served("return_token_strs", kBoolean),
    served("add_generation_prompt", kBoolean),
    served("continue_final_message", kBoolean),

    {"media_io_kwargs", kInert},
    {"mm_processor_kwargs", kInert},
    {"cache_salt", kInert},
    {"priority", kInert},

    {"tools", kRefused, kNoTools},
    {"truncate_prompt_tokens", kRefused, {}, kOnlyNull},
};

constexpr RequestField kDetokenizeFields[] = {
    served("model", kText),
    served("tokens", kTokenIds, kRequired),
    served("skip_special_tokens", kBoolean),
};

constexpr FieldTable kTables[] = {
    {"ModelFields", "The model, in every generation", "", kModelFields},
    {"SharedFields", "Every generation", "", kSharedFields},
    {"TemplateFields", "The chat template, in every conversation", "", kTemplateFields},
    {"OpenAiFields", "Completions and chat completions", "", kOpenAiFields},
    {"CompletionFields", "Completions alone", "", kCompletionFields},
    {"ChatFields", "Chat completions alone", "", kChatFields},
    {"ChatMessage", "Messages", "messages[].", kMessageFields},
    {"ContentPart", "Parts of a message's content", "content[].", kContentPartFields},
    {"ResponseFields", "Responses", "", kResponseFields},
    {"InputItem", "Items of a response's input", "input[].", kInputItemFields},
    {"InputPart", "Parts of an item's content", "content[].", kInputPartFields},
    {"AnthropicPromptFields", "Anthropic's messages and count_tokens", "", kAnthropicPromptFields},
    {"AnthropicFields", "Anthropic's messages alone", "", kAnthropicFields},
    {"AnthropicMessage", "Messages in Anthropic's form", "messages[].", kAnthropicMessageFields},
    {"ContentBlock", "Content blocks of Anthropic's messages", "content[].", kContentBlockFields},
    {"TokenizeFields", "Tokenize", "", kTokenizeFields},
    {"DetokenizeFields", "Detokenize", "", kDetokenizeFields},
};

const FieldTable* tableNamed(std::string_view name) {
  const FieldTable* table = kTables;
  while (table->name != name) ++table;
  return table;
}

}  // namespace

std::span<const FieldTable> fieldTables() { return kTables; }

std::vector<const FieldTable*> requestFields(FieldOwner owner) {
  const auto tables = [](std::initializer_list<std::string_view> names) {
    std::vector<const FieldTable*> out;
    for (const std::string_view name : names) out.push_back(tableNamed(name));
    return out;
  };
  switch (owner) {
    case FieldOwner::kCompletion:
      return tables({"ModelFields", "SharedFields", "OpenAiFields", "CompletionFields"});
    case FieldOwner::kChat:
      return tables({"ModelFields", "SharedFields", "TemplateFields", "OpenAiFields", "ChatFields"});
    case FieldOwner::kMessage:
      return tables({"ChatMessage"});
    case FieldOwner::kContentPart:
      return tables({"ContentPart"});
    case FieldOwner::kResponse:
      return tables({"ModelFields", "SharedFields", "TemplateFields", "ResponseFields"});
    case FieldOwner::kInputItem:
      return tables({"InputItem"});
    case FieldOwner::kInputPart:
      return tables({"InputPart"});
    case FieldOwner::kAnthropic:
      return tables({"ModelFields", "SharedFields", "TemplateFields", "AnthropicPromptFields", "AnthropicFields"});
    case FieldOwner::kCountTokens:
      return tables({"ModelFields", "TemplateFields", "AnthropicPromptFields"});
    case FieldOwner::kAnthropicMessage:
      return tables({"AnthropicMessage"});
    case FieldOwner::kContentBlock:
      return tables({"ContentBlock"});
    case FieldOwner::kTokenize:
      return tables({"TemplateFields", "TokenizeFields"});
    case FieldOwner::kDetokenize:
      return tables({"DetokenizeFields"});
  }
  return {};
}

}  // namespace chorus::server
