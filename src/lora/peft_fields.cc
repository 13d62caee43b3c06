#include "lora/peft_fields.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

using enum PeftFieldUse;

// The fields of LoraConfig in PEFT 0.21.
constexpr PeftField kFields[] = {
    {"peft_type", kUsed, "\"LORA\"", "another type is refused"},
    {"r", kUsed, "8", "the rank where `rank_pattern` has no other"},
    {"lora_alpha", kUsed, "8", "the scale is `lora_alpha / r`"},
    {"use_rslora", kUsed, "false", "the scale is `lora_alpha / sqrt(r)`"},
    {"use_dora", kUsed, "false", "needs an engine built with `--dora_plugin`"},
    {"rank_pattern", kUsed, "{}", "regular expressions over module names; the first that matches counts"},
    {"alpha_pattern", kUsed, "{}", "likewise"},
    {"target_modules", kUsed, "null",
     "names, name ends, one regular expression or `all-linear`; tensors of other modules are refused"},
    {"exclude_modules", kUsed, "null", "names, name ends or one regular expression"},
    {"layers_to_transform", kUsed, "null", "layers that `target_modules` is about"},
    {"layers_pattern", kUsed, "null", "the name before the layer's number"},
    {"init_lora_weights", kUsed, "true",
     "`pissa`, `olora`, `corda`, `loftq` and `lora_ga` change the base model and are refused"},
    {"bias", kUsed, "\"none\"", "`all` and `lora_only`: the base's biases are replaced"},
    {"lora_bias", kUsed, "false", "a bias of `lora_B`; not beside `use_dora`"},
    {"modules_to_save", kUsed, "null",
     "any linear layer, norm, the embedding and the output head, or a module that holds some"},
    {"trainable_token_indices", kUsed, "null",
     "rows of the embedding, and of the output head where it is named or the model ties the two"},
    {"ensure_weight_tying", kUsed, "false", "a replaced embedding is the output head too where the model ties the two"},
    {"target_parameters", kUsed, "null",
     "weights of linear layers, the embedding and the output head, but not of GPT-2, whose files have linear layers "
     "transposed; not beside `use_dora`, `lora_bias`, `fan_in_fan_out` or a `lora_dropout`"},

    {"task_type", kInert, "null", "provenance"},
    {"auto_mapping", kInert, "null", "provenance"},
    {"peft_version", kInert, "null", "provenance"},
    {"base_model_name_or_path", kInert, "null", "shapes are checked instead"},
    {"revision", kInert, "null", "provenance"},
    {"inference_mode", kInert, "false", "training"},
    {"lora_dropout", kInert, "0.0", "training"},
    {"megatron_core", kInert, "\"megatron.core\"", "acts with `megatron_config`"},
    {"loftq_config", kInert, "{}", "acts with `init_lora_weights`"},
    {"eva_config", kInert, "null", "initialisation"},
    {"corda_config", kInert, "null", "acts with `init_lora_weights`"},
    {"lora_ga_config", kInert, "null", "acts with `init_lora_weights`"},
    {"velora_config", kInert, "null", "training: the backward pass"},
    {"qalora_group_size", kInert, "16", "acts with `use_qalora`"},
    {"runtime_config", kInert, "null", "where PEFT keeps weights; not saved"},
    {"fan_in_fan_out", kInert, "false", "it says how the base stores its weights, which the model determines"},

    {"megatron_config", kDefaultOnly, "null", "adapters of Megatron's parallel layers"},
    {"alora_invocation_tokens", kDefaultOnly, "null", "the adapter would begin to act in mid-prompt"},
    {"use_qalora", kDefaultOnly, "false", "inputs would be pooled in groups"},
    {"monteclora_config", kDefaultOnly, "null", "another product"},
    {"layer_replication", kDefaultOnly, "null", "the model would have other layers"},
    {"use_bdlora", kDefaultOnly, "null", "block-diagonal factors"},
    {"arrow_config", kDefaultOnly, "null", "routing between adapters"},
    {"kasa_config", kDefaultOnly, "null", "a diagonal between the factors, and another base weight"}};

// null, false, [] and {} mean that the field is unset.
bool saysNothing(const Json& value) {
  return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty());
}
}  // namespace

std::span<const PeftField> peftFields() { return kFields; }

std::string peftFieldsMarkdown() {
  std::string text = "| field | default | here | |\n|---|---|---|---|\n";
  for (const PeftField& field : kFields) {
    const std::string_view use = field.use == kUsed ? "used" : field.use == kInert ? "inert" : "default only";
    text += fmt::format("| `{}` | `{}` | {} | {} |\n", field.name, field.default_json, use, field.note);
  }
  return text;
}

void checkPeftFields(const Json& config, std::string_view source) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.items()) {
    const auto field = std::find_if(std::begin(kFields), std::end(kFields),
                                    [&name = key](const PeftField& known) { return known.name == name; });
    if (field == std::end(kFields)) {
      if (!saysNothing(value)) unknown.push_back(key);
    } else if (field->use == kDefaultOnly && !saysNothing(value) && value != Json::parse(field->default_json)) {
      fail(ErrorCode::kUnsupported, "{}: '{}' is supported only at its default {}", source, key, field->default_json);
    }
  }
  if (!unknown.empty()) log::warn("{}: ignoring unknown fields: {}", source, listSome(unknown));
}

}  // namespace chorus
