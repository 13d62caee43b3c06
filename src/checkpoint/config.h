// The model's configuration in TensorRT-LLM's checkpoint form: what config.json of a checkpoint directory says, and
// what `pretrained_config` of an engine directory repeats (spec S1; field names and defaults as TensorRT-LLM's
// PretrainedConfig).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace chorus {

// Ranks of a model: tensor parallel fastest. world_size = tp_size * pp_size.
struct Mapping {
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  int32_t worldSize() const { return tp_size * pp_size; }
  int32_t tpRank(int32_t rank) const { return rank % tp_size; }
  int32_t ppRank(int32_t rank) const { return rank / tp_size; }
};

// A contiguous run of global layer ids.
struct LayerRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t count() const { return end - begin; }
};
// Layers of one pipeline stage: contiguous, the first (layers mod pp) stages hold one more.
LayerRange stageLayers(int32_t num_layers, const Mapping& mapping, int32_t pp_rank);

enum class PositionEmbedding { kLearnedAbsolute, kRopeGptj, kRopeGptNeox, kAlibi, kAlibiWithScale, kRelative };
enum class RopeScalingType { kNone, kLinear, kLlama3 };

struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                 // llama3 only
  double high_freq_factor = 4.0;                // llama3 only
  double original_max_position_embeddings = 0;  // llama3 only
};

struct QuantConfig {
  std::optional<std::string> quant_algo;
  std::optional<std::string> kv_cache_quant_algo;
  int32_t group_size = 128;  // inputs that share a scale; 0: one scale for all inputs of an output
  double smoothquant_val = 0.5;
  std::optional<std::vector<double>> clamp_val;  // [low, high]
  bool use_meta_recipe = false;
  bool has_zero_point = false;
  bool pre_quant_scale = false;
  std::optional<std::vector<std::string>> exclude_modules;
};

struct ModelConfig {
  std::string architecture;  // Hugging Face's class name, e.g. "LlamaForCausalLM"
  DType dtype = DType::kFloat16;
  DType logits_dtype = DType::kFloat32;  // logits are rounded to it
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int32_t num_hidden_layers = 0;
  int32_t num_attention_heads = 0;
  int32_t num_key_value_heads = 0;
  int64_t head_size = 0;
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 0;
  std::string hidden_act;
  double norm_epsilon = 1e-5;
  double q_scaling = 1.0;  // attention's products are divided by q_scaling * sqrt(head_size)
  PositionEmbedding position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  int64_t rotary_embedding_dim = 0;
  double rotary_base = 10000.0;
  RopeScaling rotary_scaling;
  bool attn_bias = false;  // bias on qkv and on dense
  bool mlp_bias = false;
  bool qk_layernorm = false;
  bool tie_word_embeddings = false;  // the output head is the embedding table; see sharesEmbedding
  bool use_parallel_embedding = false;
  int32_t embedding_sharding_dim = 0;
  Mapping mapping;
  QuantConfig quantization;
  // How quantised weights lie in the rank files; "plain" is the only one that is read (quantisation.h).
  std::optional<std::string> weight_layout;
  // Keys of other models and unknown keys, kept as read and written back.
  Json extra = Json::object();

  // Reads a checkpoint's config.json and finalizes it; source names it in errors. An unknown key inside
  // `quantization` or `rotary_scaling` is an error, an unknown key at the top (config_fields.h) a warning. Whether the
  // architecture computes what the config asks for is checked by architectureOf (models/architecture.h).
  static ModelConfig fromJson(const Json& json, std::string_view source);
  Json toJson() const;  // all of S1's fields, in TensorRT-LLM's spelling; position_embedding_type by name

  // Fills derived defaults of fields left at 0 (num_key_value_heads, head_size, intermediate_size,
  // rotary_embedding_dim), then checks sizes for sign, range and divisibility by each other and by the mapping.
  // Throws Error(kInvalidArgument) that names source and field.
  void finalize(std::string_view source);
};

// The size under an optional key; 0 where it is absent or null. Throws Error(kInvalidArgument) that names source and
// key when it is given and is not a size: 0 has no meaning of its own.
int64_t optionalSize(const Json& json, const char* key, std::string_view source);

// True when lm_head.weight is left out of the rank files: the model ties, and every rank that needs the head holds
// whole rows of the embedding table (one pipeline stage; a table that is not cut along hidden_size).
inline bool sharesEmbedding(const ModelConfig& config) {
  return config.tie_word_embeddings && config.mapping.pp_size == 1 &&
         !(config.use_parallel_embedding && config.embedding_sharding_dim == 1 && config.mapping.tp_size > 1);
}

}  // namespace chorus
