#include "checkpoint/config_fields.h"

#include <algorithm>
#include <string>
#include <vector>

namespace chorus {
namespace {

std::vector<ConfigField> makeFields() {
  std::vector<ConfigField> fields;
  const auto add = [&](FieldUse use, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) fields.push_back({.name = name, .use = use});
  };
  const auto structural = [&](std::string_view name, const Json& neutral, const Json& absent = nullptr) {
    fields.push_back({.name = name, .use = FieldUse::kStructural, .neutral = neutral, .absent = absent});
  };
  const Json none = Json::array();
  const Json off = Json::array({false});
  const Json on = Json::array({true});
  const Json one = Json::array({1.0});
  const Json zero = Json::array({0});

  add(FieldUse::kRead, {"architecture",
                        "dtype",
                        "logits_dtype",
                        "vocab_size",
                        "hidden_size",
                        "embedding_size",
                        "num_hidden_layers",
                        "num_attention_heads",
                        "num_key_value_heads",
                        "head_size",
                        "intermediate_size",
                        "max_position_embeddings",
                        "norm_epsilon",
                        "q_scaling",
                        "rotary_embedding_dim",
                        "rotary_dim",
                        "rotary_pct",
                        "rotary_base",
                        "rotary_scaling",
                        "original_max_position_embeddings",
                        "longrope_scaling_short_factors",
                        "longrope_scaling_long_factors",
                        "tie_word_embeddings",
                        "share_embedding_table",
                        "use_parallel_embedding",
                        "embedding_sharding_dim",
                        "mapping",
                        "quantization",
                        "weight_layout"});
  add(FieldUse::kInert, {"disable_weight_only_quant_plugin", "remove_duplicated_kv_heads", "runtime_defaults",
                         "kv_dtype", "producer", "model_type", "qwen_type", "gpt_variant", "seq_length", "num_labels",
                         "decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id"});

  // Fields of all models.
  structural("position_embedding_type", none, "learned_absolute");
  structural("hidden_act", none);
  structural("qk_layernorm", off);
  structural("quantization.clamp_val", none);
  structural("quantization.use_meta_recipe", off);
  // Mixture of experts: the `moe` object, or the flat keys that older converters write.
  for (const std::string_view name : {"moe.num_experts", "moe_num_experts"}) structural(name, Json::array({0, 1}));
  add(FieldUse::kInert, {"moe_top_k", "moe_normalization_mode", "moe_tp_mode"});  // inert in models without experts
  structural("moe_intermediate_size", zero);
  structural("moe_shared_expert_intermediate_size", zero);
  structural("decoder_sparse_step", Json::array({1}));
  structural("mlp_only_layers", Json::array({Json::array()}));
  // Fields of the Llama family.
  structural("attn_bias", off);
  structural("mlp_bias", off);
  structural("residual_mlp", off);
  structural("embedding_multiplier", one);
  structural("attention_multiplier", one);
  structural("residual_multiplier", one);
  structural("output_multiplier_scale", one);
  structural("fc_after_embed", off);
  structural("use_input_layernorm_in_first_layer", on);
  structural("use_last_layernorm", on);
  structural("layer_idx_offset", zero);
  // Fields of GPT, OPT, Falcon, Qwen and Gemma.
  structural("bias", off);
  structural("embedding_scale", none);
  structural("apply_query_key_layer_scaling", off);
  structural("do_layer_norm_before", off);
  structural("parallel_attention", off);
  structural("new_decoder_architecture", off);
  structural("use_parallel_residual", on);
  structural("num_ln_in_parallel_attn", Json::array({2}));
  structural("use_logn_attn", off);
  structural("query_pre_attn_scalar", none);
  structural("attn_logit_softcapping", none);
  structural("final_logit_softcapping", none);
  structural("sliding_window", none);
  structural("sliding_window_pattern", none);
  structural("_sliding_window_pattern", none);
  structural("layer_types", none);
  structural("rope_local_base_freq", none);
  structural("inter_layernorms", off);
  structural("no_rope_layers", none);
  structural("llama_4_scaling_beta", zero);
  structural("longrope_short_mscale", none);
  structural("longrope_long_mscale", none);
  // Fields of encoder and encoder-decoder models.
  structural("has_position_embedding", off);
  structural("has_attention_qkvo_bias", off);
  structural("has_mlp_bias", off);
  structural("has_embedding_layernorm", off);
  structural("has_embedding_scale", off);
  structural("has_model_final_layernorm", on);
  structural("layernorm_type", none);
  structural("layernorm_position", none);
  structural("mlp_type", none);
  structural("gated_act", off);
  structural("rescale_before_lm_head", off);
  structural("relative_attention", off);
  structural("use_implicit_relative_attention", off);
  structural("max_distance", zero);
  structural("num_buckets", zero);
  // A text model inside a model of several kinds of input.
  structural("text_architecture", none);
  return fields;
}

const Json kAbsent = nullptr;
}  // namespace

std::span<const ConfigField> configFields() {
  static const std::vector<ConfigField> kFields = makeFields();
  return kFields;
}

bool isConfigKey(std::string_view key) {
  const auto fields = configFields();
  return std::any_of(fields.begin(), fields.end(),
                     [&](const ConfigField& field) { return field.name.substr(0, field.name.find('.')) == key; });
}

const Json& configValue(const Json& config, std::string_view field) {
  const size_t dot = field.find('.');
  const auto top = config.find(std::string(field.substr(0, dot)));
  if (top == config.end()) return kAbsent;
  if (dot == std::string_view::npos || !top->is_object()) return *top;
  const auto member = top->find(std::string(field.substr(dot + 1)));
  return member == top->end() ? kAbsent : *member;
}

}  // namespace chorus
