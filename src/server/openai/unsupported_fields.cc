#include "server/openai/unsupported_fields.h"

#include <fmt/format.h>

#include <span>

#include "server/errors.h"

namespace chorus::server {
namespace {

using Neutral = bool (*)(const OrderedJson& value);

struct UnsupportedField {
  std::string_view name;
  Neutral isNeutral;  // null never reaches it
};

bool never(const OrderedJson&) { return false; }
bool isEmpty(const OrderedJson& v) {
  return v.is_string() ? v.get_ref<const std::string&>().empty() : v.is_structured() && v.empty();
}
bool isOne(const OrderedJson& v) { return v.is_number() && v.get<double>() == 1.0; }
bool isFalse(const OrderedJson& v) { return v.is_boolean() && !v.get<bool>(); }
bool isTextFormat(const OrderedJson& v) { return v.is_object() && v.contains("type") && v["type"] == "text"; }
bool isNoneOrAuto(const OrderedJson& v) { return v == "none" || v == "auto"; }
bool isTextOnly(const OrderedJson& v) { return v.is_array() && v.size() == 1 && v[0] == "text"; }

constexpr UnsupportedField kCommon[] = {
    {"length_penalty", isOne},       {"use_beam_search", isFalse},      {"early_stopping", isFalse},
    {"allowed_token_ids", isEmpty},  {"response_format", isTextFormat}, {"guided_json", never},
    {"guided_regex", never},         {"guided_choice", never},          {"guided_grammar", never},
    {"structured_outputs", isEmpty}, {"prompt_logprobs", never},        {"truncate_prompt_tokens", never},
};

constexpr UnsupportedField kCompletion[] = {
    {"suffix", isEmpty},
};

constexpr UnsupportedField kChat[] = {
    {"tool_choice", isNoneOrAuto}, {"functions", isEmpty}, {"function_call", isNoneOrAuto},
    {"modalities", isTextOnly},    {"audio", never},       {"web_search_options", never},
    {"reasoning_effort", never},   {"verbosity", never},   {"echo", isFalse},
};

void refuse(const FieldReader& fields, std::span<const UnsupportedField> list) {
  for (const auto& [name, isNeutral] : list) {
    const OrderedJson* value = fields.find(name);
    if (value == nullptr || isNeutral(*value)) continue;
    const std::string field(name);
    throw ApiError::invalid(fmt::format("'{}' is not supported with this value; leave it out.", field), field,
                            "unsupported_parameter");
  }
}

}  // namespace

void refuseUnsupportedCompletionFields(const FieldReader& fields) {
  refuse(fields, kCommon);
  refuse(fields, kCompletion);
}

void refuseUnsupportedChatFields(const FieldReader& fields) {
  refuse(fields, kCommon);
  refuse(fields, kChat);
}

}  // namespace chorus::server
