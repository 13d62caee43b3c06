#include "models/nemo_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "models/experts.h"
#include "models/gpt.h"
#include "models/model_spec.h"

namespace chorus {
namespace {

// Fields that change the model, and the only value that is supported besides null.
const std::pair<const char*, Json> kOnlyNemoValues[] = {{"transformer_block_type", "pre_ln"},
                                                        {"megatron_legacy", false},
                                                        {"headscale", false},
                                                        {"qk_layernorm", false},
                                                        {"window_size", nullptr},
                                                        {"sliding_window", nullptr},
                                                        {"apply_embedding_scaling", false},
                                                        {"parallel_attention", false},
                                                        {"new_decoder_architecture", false},
                                                        {"attn_logit_softcapping", nullptr},
                                                        {"final_logit_softcapping", nullptr},
                                                        {"query_pre_attn_scalar", nullptr},
                                                        {"multi_latent_attention", false},
                                                        {"virtual_pipeline_model_parallel_size", nullptr}};
// Further such fields of a model with experts.
const std::pair<const char*, Json> kOnlyNemoExpertsValues[] = {{"expert_model_parallel_size", 1},
                                                               {"moe_layer_freq", 1},
                                                               {"moe_shared_expert_intermediate_size", nullptr},
                                                               {"moe_router_score_function", "softmax"},
                                                               {"moe_router_enable_expert_bias", false},
                                                               {"moe_router_topk_scaling_factor", nullptr},
                                                               {"moe_router_num_groups", nullptr},
                                                               {"moe_router_group_topk", nullptr},
                                                               {"moe_expert_capacity_factor", nullptr}};

int64_t nemoSize(const Json& config, const char* key, std::string_view source) {
  const auto value = jsonGet<int64_t>(config, key, source);
  if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' is {}; it must be at least 1", source, key, value);
  }
  return value;
}
int64_t nemoSizeOr(const Json& config, const char* key, int64_t fallback, std::string_view source) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null() ? fallback : nemoSize(config, key, source);
}
double nemoFactorOr(const Json& config, const char* key, double fallback, std::string_view source) {
  const auto value = jsonGetOr(config, key, fallback, source);
  if (!isFactor(value)) fail(ErrorCode::kInvalidArgument, "{}: '{}' is {:g}", source, key, value);
  return value;
}

[[noreturn]] void refuseNemoValue(std::string_view source, const char* key, std::string_view value,
                                  std::string_view known) {
  fail(ErrorCode::kUnsupported, "{}: '{}' {} is not supported; {}", source, key, value, known);
}

void checkOnlyValues(const Json& config, std::span<const std::pair<const char*, Json>> fields,
                     std::string_view source) {
  for (const auto& [key, only] : fields) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null() || *it == only) continue;
    fail(ErrorCode::kUnsupported, "{}: '{}' is {}, which is not supported", source, key, it->dump().substr(0, 100));
  }
}

bool hasNemoExperts(const Json& config, std::string_view source) {
  return nemoSizeOr(config, "num_moe_experts", 1, source) > 1;
}

// The fields of Megatron core's router and experts. The balancing of experts only changes training, except Sinkhorn's.
void readNemoExperts(const Json& config, std::string_view source, ModelConfig& model) {
  checkOnlyValues(config, kOnlyNemoExpertsValues, source);
  const auto balancing = jsonGetOr<std::string>(config, "moe_router_load_balancing_type", "aux_loss", source);
  if (balancing == "sinkhorn") {
    refuseNemoValue(source, "moe_router_load_balancing_type", balancing, "the choice of experts by their scores is");
  }
  setExperts({.experts = static_cast<int32_t>(nemoSize(config, "num_moe_experts", source)),
              .top_k = static_cast<int32_t>(nemoSizeOr(config, "moe_router_topk", 2, source)),
              .normalised = !jsonGetOr(config, "moe_router_pre_softmax", false, source),
              .size = nemoSizeOr(config, "moe_ffn_hidden_size", model.intermediate_size, source)},
             source, model);
}

// hidden_act of the checkpoint. Megatron's fused functions compute gelu by tanh; they need a bias in a plain MLP.
std::string nemoHiddenAct(const Json& config, bool bias, std::string_view source) {
  auto name = jsonGetOr<std::string>(config, "activation", "gelu", source);
  if (name.starts_with("fast-")) name.erase(0, std::string_view("fast-").size());
  const bool mcore = jsonGetOr(config, "mcore_gpt", false, source);
  const bool fused =
      jsonGetOr(config, "bias_activation_fusion", jsonGetOr(config, "bias_gelu_fusion", !mcore, source), source);
  const bool openai = jsonGetOr(config, "openai_gelu", false, source);
  if (name == "swiglu") return kSwiglu;
  if (name == "geglu") return fused || openai ? kGeglu : kGegluErf;
  if (name == "reglu") return kReglu;
  if (name == "gelu") return (fused && bias) || openai ? "gelu_new" : "gelu";
  if (name == "approx-gelu" || name == "openai-gelu") return "gelu_new";
  if (name == "relu" || name == kSquaredRelu) return name;
  refuseNemoValue(source, "activation", name,
                  "swiglu, geglu, reglu, gelu, relu and squared-relu are, also with fast- before them");
}

void readNemoPositions(const Json& config, std::string_view source, ModelConfig& model) {
  const auto type = jsonGetOr<std::string>(config, "position_embedding_type", "learned_absolute", source);
  if (type == "learned_absolute") return;
  if (type != "rope") refuseNemoValue(source, "position_embedding_type", type, "learned_absolute and rope are");
  model.position_embedding_type = jsonGetOr(config, "rotary_interleaved", false, source)
                                      ? PositionEmbedding::kRopeGptj
                                      : PositionEmbedding::kRopeGptNeox;
  const auto share = jsonGetOr(config, "rotary_percentage", 1.0, source);
  if (!(share > 0 && share <= 1)) {
    fail(ErrorCode::kInvalidArgument, "{}: 'rotary_percentage' is {:g}; it must be above 0 and at most 1", source,
         share);
  }
  model.rotary_embedding_dim = static_cast<int64_t>(static_cast<double>(model.head_size) * share);
  model.rotary_base = nemoFactorOr(config, "rotary_base", 10000, source);
  const double factor = nemoFactorOr(config, "seq_len_interpolation_factor", 1, source);
  if (jsonGetOr(config, "scale_positional_embedding", false, source)) {
    // Megatron's scaling of Llama 3.1, with its constants.
    model.rotary_scaling = {.type = RopeScalingType::kLlama3,
                            .factor = nemoFactorOr(config, "scale_factor", 8, source),
                            .low_freq_factor = 1,
                            .high_freq_factor = 4,
                            .original_max_position_embeddings = 8192};
    if (factor != 1) {
      fail(ErrorCode::kUnsupported, "{}: 'seq_len_interpolation_factor' beside 'scale_positional_embedding'", source);
    }
  } else if (factor != 1) {
    model.rotary_scaling = {.type = RopeScalingType::kLinear, .factor = factor};
  }
}
}  // namespace

NemoModelConfig readNemoModelConfig(const Json& config, std::string_view source) {
  checkOnlyValues(config, kOnlyNemoValues, source);
  NemoModelConfig read;
  ModelConfig& model = read.config;
  model.hidden_size = nemoSize(config, "hidden_size", source);
  model.num_hidden_layers = static_cast<int32_t>(nemoSize(config, "num_layers", source));
  const int64_t heads = nemoSize(config, "num_attention_heads", source);
  const int64_t groups = nemoSizeOr(config, "num_query_groups", heads, source);
  if (heads % groups != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: 'num_attention_heads' {} is not divisible by 'num_query_groups' {}", source,
         heads, groups);
  }
  model.num_attention_heads = static_cast<int32_t>(heads);
  model.num_key_value_heads = static_cast<int32_t>(groups);
  model.head_size = nemoSizeOr(config, "kv_channels", std::max<int64_t>(model.hidden_size / heads, 1), source);
  model.intermediate_size = nemoSizeOr(config, "ffn_hidden_size", 4 * model.hidden_size, source);
  model.max_position_embeddings =
      nemoSizeOr(config, "max_position_embeddings", nemoSizeOr(config, "encoder_seq_length", 2048, source), source);
  model.norm_epsilon = nemoFactorOr(config, "layernorm_epsilon", 1e-5, source);
  model.tie_word_embeddings = jsonGetOr(config, "share_embeddings_and_output_weights", true, source);
  read.vocabulary = nemoSizeOr(config, "override_vocab_size", 0, source);
  readNemoPositions(config, source, model);
  if (!jsonGetOr(config, "normalize_attention_scores", true, source)) {
    model.q_scaling = 1 / std::sqrt(static_cast<double>(model.head_size));
  }

  const auto norms = jsonGetOr<std::string>(config, "normalization", "layernorm", source);
  const bool rms = norms == "rmsnorm";
  if (!rms && norms != "layernorm" && norms != "layernorm1p") {
    refuseNemoValue(source, "normalization", norms, "layernorm, layernorm1p and rmsnorm are");
  }
  read.norms_from_one = norms == "layernorm1p" || jsonGetOr(config, "layernorm_zero_centered_gamma", false, source);
  const bool bias = jsonGetOr(config, "bias", true, source);
  for (const char* key : {"qkv_bias", "add_qkv_bias"}) {
    if (jsonGetOr(config, key, bias, source) != bias) {
      fail(ErrorCode::kUnsupported, "{}: '{}' differs from 'bias', which is not supported", source, key);
    }
  }
  const std::string act = nemoHiddenAct(config, bias, source);
  const bool is_llama = rms && !bias && act == kSwiglu && model.rotary_embedding_dim == model.head_size;
  if (is_llama) {
    model.architecture = "LlamaForCausalLM";
    model.hidden_act = "silu";
    read.begins_with_bos = true;
    if (hasNemoExperts(config, source)) {
      model.architecture = "MixtralForCausalLM";
      readNemoExperts(config, source, model);
    }
    return read;
  }
  if (hasNemoExperts(config, source)) {
    fail(ErrorCode::kUnsupported,
         "{}: 'num_moe_experts': a mixture of experts is supported with rmsnorm, swiglu, rotary positions on whole "
         "heads "
         "and no biases only",
         source);
  }
  model.architecture = "GPTForCausalLM";
  model.hidden_act = act;
  model.attn_bias = model.mlp_bias = bias;
  model.extra[kGptBias] = bias;
  model.extra[kGptNormType] = rms ? 1 : 0;
  model.extra[kGptVariant] = "nemo";
  return read;
}

}  // namespace chorus
