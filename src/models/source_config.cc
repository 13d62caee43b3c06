#include "models/source_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/names.h"

namespace chorus {
namespace {

// Keys of PretrainedConfig and GenerationConfig that change no weight and no logit.
constexpr std::string_view kInertEverywhere[] = {"architectures",
                                                 "model_type",
                                                 "transformers_version",
                                                 "_name_or_path",
                                                 "torch_dtype",
                                                 "dtype",
                                                 "use_cache",
                                                 "bos_token_id",
                                                 "eos_token_id",
                                                 "pad_token_id",
                                                 "sep_token_id",
                                                 "cls_token_id",
                                                 "decoder_start_token_id",
                                                 "initializer_range",
                                                 "attention_dropout",
                                                 "hidden_dropout",
                                                 "resid_pdrop",
                                                 "output_attentions",
                                                 "output_hidden_states",
                                                 "return_dict",
                                                 "torchscript",
                                                 "id2label",
                                                 "label2id",
                                                 "problem_type",
                                                 "num_labels",
                                                 "task_specific_params",
                                                 "finetuning_task",
                                                 "tokenizer_class",
                                                 "prefix",
                                                 "auto_map",
                                                 "_attn_implementation",
                                                 "_attn_implementation_autoset",
                                                 "attn_implementation",
                                                 "use_bfloat16",
                                                 "tf_legacy_loss",
                                                 "typical_p",
                                                 "chunk_size_feed_forward",
                                                 "generation_config",
                                                 "max_length",
                                                 "min_length",
                                                 "do_sample",
                                                 "temperature",
                                                 "top_k",
                                                 "top_p",
                                                 "num_beams",
                                                 "repetition_penalty",
                                                 "unsloth_version",
                                                 "unsloth_fixed",
                                                 "_commit_hash",
                                                 "model_max_length",
                                                 "rope_interleaved"};

const std::vector<std::pair<std::string_view, Json>>& onlyDefaultEverywhere() {
  static const std::vector<std::pair<std::string_view, Json>> keys = {
      {"is_encoder_decoder", false},   {"is_decoder", false},
      {"add_cross_attention", false},  {"cross_attention_hidden_size", nullptr},
      {"tie_encoder_decoder", false},  {"quantization_config", nullptr},
      {"compression_config", nullptr}, {"pruned_heads", Json::object()}};
  return keys;
}

void checkDefault(const std::string& key, const Json& value, const Json& expected, std::string_view source) {
  if (value.is_null() || value == expected) return;
  if (key == "quantization_config") {
    fail(ErrorCode::kUnsupported, "{}: 'quantization_config' is set; convert the model's unquantised weights", source);
  }
  fail(ErrorCode::kUnsupported, "{}: '{}' is supported only at its default {}", source, key, expected.dump());
}
}  // namespace

void checkSourceKeys(const Json& json, const SourceKeys& keys, std::string_view source) {
  const auto listed = [](const auto& list, std::string_view key) {
    return std::find(std::begin(list), std::end(list), key) != std::end(list);
  };
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json.items()) {
    if (listed(keys.used, key) || listed(keys.inert, key)) continue;
    const auto same = [&key = key](const auto& entry) { return entry.first == key; };
    const auto own = std::find_if(keys.only_at_default.begin(), keys.only_at_default.end(), same);
    const auto& common_list = onlyDefaultEverywhere();
    const auto common = std::find_if(common_list.begin(), common_list.end(), same);
    if (own != keys.only_at_default.end()) {
      checkDefault(key, value, own->second, source);
    } else if (common != common_list.end()) {
      checkDefault(key, value, common->second, source);
    } else if (!listed(kInertEverywhere, key)) {
      unknown.push_back(key);
    }
  }
  if (!unknown.empty()) log::warn("{}: unknown keys are not used: {}", source, listSome(unknown));
}

ModelConfig readDecoderConfig(const Json& json, std::string_view source) {
  ModelConfig config;
  config.hidden_size = jsonGet<int64_t>(json, "hidden_size", source);
  config.intermediate_size = jsonGet<int64_t>(json, "intermediate_size", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "num_hidden_layers", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "num_attention_heads", source);
  config.num_key_value_heads = static_cast<int32_t>(optionalSize(json, "num_key_value_heads", source));
  config.head_size = optionalSize(json, "head_dim", source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 2048, source);
  config.norm_epsilon = jsonGetOr(json, "rms_norm_eps", 1e-6, source);
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", false, source);
  config.hidden_act = jsonGetOr<std::string>(json, "hidden_act", "silu", source);
  if (config.hidden_act == "swish") config.hidden_act = "silu";
  return config;
}

std::vector<std::string_view> decoderKeys() {
  return {"hidden_size",         "intermediate_size",       "num_hidden_layers",
          "num_attention_heads", "num_key_value_heads",     "head_dim",
          "vocab_size",          "max_position_embeddings", "rms_norm_eps",
          "hidden_act",          "tie_word_embeddings",     "rope_theta",
          "rope_scaling",        "rope_parameters",         "original_max_position_embeddings"};
}

Json withDefaults(const Json& json, const Json& defaults) {
  Json all = json;
  for (const auto& [key, value] : defaults.items()) {
    const auto given = all.find(key);
    const bool null_is_derived = key == "num_key_value_heads" || key == "head_dim";
    if (given == all.end() || (given->is_null() && !null_is_derived)) all[key] = value;
  }
  return all;
}

namespace {

// partial_rotary_factor at the top level or in the object of the scaling.
void readPartialRotary(const Json& json, const Json& scaling, std::string_view source, std::string_view where,
                       ModelConfig& config) {
  const double outside = jsonGetOr(json, "partial_rotary_factor", 1.0, source);
  const double factor = scaling.is_object() ? jsonGetOr(scaling, "partial_rotary_factor", outside, where) : outside;
  if (!(factor > 0.0 && factor <= 1.0)) {
    fail(ErrorCode::kInvalidArgument, "{}: 'partial_rotary_factor' {} must lie in (0, 1]", source, factor);
  }
  const int64_t head_size = config.head_size > 0             ? config.head_size
                            : config.num_attention_heads > 0 ? config.hidden_size / config.num_attention_heads
                                                             : 0;
  // transformers computes int(head_dim * factor).
  config.rotary_embedding_dim = static_cast<int64_t>(static_cast<double>(head_size) * factor);
  if (head_size > 0 && config.rotary_embedding_dim < 2) {
    fail(ErrorCode::kUnsupported, "{}: 'partial_rotary_factor' {} leaves no pair of a head's {} elements to rotate",
         source, factor, head_size);
  }
}
}  // namespace

void readRotary(const Json& json, std::string_view source, PartialRotary partial, ModelConfig& config,
                std::vector<std::string_view> other_keys) {
  const auto member = [&](const char* key) {
    const auto it = json.find(key);
    return it == json.end() ? Json(nullptr) : *it;
  };
  const Json parameters = member("rope_parameters");
  const Json scaling = parameters.is_null() ? member("rope_scaling") : parameters;
  const std::string where = fmt::format("{}: {}", source, parameters.is_null() ? "rope_scaling" : "rope_parameters");
  config.rotary_base = jsonGetOr(json, "rope_theta", config.rotary_base, source);
  if (partial == PartialRotary::kRead) readPartialRotary(json, scaling, source, where, config);
  if (scaling.is_null()) return;
  if (!scaling.is_object()) fail(ErrorCode::kInvalidArgument, "{}: must be an object or null", where);
  config.rotary_base = jsonGetOr(scaling, "rope_theta", config.rotary_base, where);

  const auto type =
      jsonGetOr<std::string>(scaling, "rope_type", jsonGetOr<std::string>(scaling, "type", "default", where), where);
  RopeLengths lengths = {.max_position_embeddings = config.max_position_embeddings};
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (!member(kOriginal).is_null()) lengths.original_length = jsonGet<double>(json, kOriginal, source);
  other_keys.emplace_back("rope_theta");
  if (partial == PartialRotary::kRead || scaling.value("partial_rotary_factor", Json(1.0)) == 1.0) {
    other_keys.emplace_back("partial_rotary_factor");
  }
  config.rotary_scaling = readRopeScaling(scaling, type, where, lengths, other_keys);
}

}  // namespace chorus
