// The model configuration in a checkpoint's config.json, which an engine directory repeats as `pretrained_config`.
// Field names and defaults are those of TensorRT-LLM's PretrainedConfig.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "checkpoint/rope_scaling.h"

namespace chorus {

// The ranks of a model: rank = pp_rank * tp_size + tp_rank, world_size = tp_size * pp_size.
struct Mapping {
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  int32_t worldSize() const { return tp_size * pp_size; }
  int32_t tpRank(int32_t rank) const { return rank % tp_size; }
  int32_t ppRank(int32_t rank) const { return rank / tp_size; }
};

// The global layer ids [begin, end).
struct LayerRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t count() const { return end - begin; }
};
// The layers of one pipeline stage. The first (num_layers mod pp_size) stages have one layer more than the others.
LayerRange stageLayers(int32_t num_layers, const Mapping& mapping, int32_t pp_rank);

enum class PositionEmbedding { kLearnedAbsolute, kRopeGptj, kRopeGptNeox, kAlibi, kAlibiWithScale, kRelative };

struct QuantConfig {
  std::optional<std::string> quant_algo;
  std::optional<std::string> kv_cache_quant_algo;
  int32_t group_size = 128;  // number of inputs that share a scale; 0: one scale per output for all its inputs
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
  DType logits_dtype = DType::kFloat32;  // logits are rounded to this type
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  // Width of the token embedding and of the output head's inputs. It is hidden_size unless the model projects between
  // them (OPT-350m).
  int64_t embedding_size = 0;
  int32_t num_hidden_layers = 0;
  int32_t num_attention_heads = 0;
  int32_t num_key_value_heads = 0;
  int64_t head_size = 0;
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 0;
  std::string hidden_act;
  double norm_epsilon = 1e-5;
  double q_scaling = 1.0;  // attention scores are q . k / (q_scaling * sqrt(head_size))
  PositionEmbedding position_embedding_type = PositionEmbedding::kLearnedAbsolute;
  int64_t rotary_embedding_dim = 0;
  double rotary_base = 10000.0;
  RopeScaling rotary_scaling;
  bool attn_bias = false;  // bias on qkv and on dense
  bool mlp_bias = false;
  bool qk_layernorm = false;
  bool tie_word_embeddings = false;  // the output head uses the embedding table; see sharesEmbedding
  bool use_parallel_embedding = false;
  int32_t embedding_sharding_dim = 0;
  Mapping mapping;
  QuantConfig quantization;
  // Memory layout of quantised weights in the rank files. Only "plain" is supported (quantisation.h).
  std::optional<std::string> weight_layout;
  // Keys without a member above, such as those of other models and unknown ones; written back unchanged.
  Json extra = Json::object();

  // Reads a checkpoint's config.json and calls finalize(). source: name of the file in error messages. An unknown key
  // in `quantization` or `rotary_scaling` throws an Error; an unknown top-level key (config_fields.h) is logged as a
  // warning. Whether the architecture supports the config is checked later, by architectureOf (models/architecture.h).
  static ModelConfig fromJson(const Json& json, std::string_view source);
  Json toJson() const;  // all fields in TensorRT-LLM's spelling, and `extra`; position_embedding_type as a name

  // Derives the fields that are 0 (embedding_size, num_key_value_heads, head_size, intermediate_size,
  // rotary_embedding_dim) from other fields. Then checks the range of all sizes and their divisibility by each other
  // and by the mapping. Throws Error(kInvalidArgument) that names source and field.
  void finalize(std::string_view source);
};

// The config.json of a model, a checkpoint or an engine, of at most 4 MiB. Throws Error as readJsonFile does.
Json readModelConfigFile(const std::filesystem::path& path);

// The size (at least 1) under an optional key; 0 when the key is missing or null. Throws Error(kInvalidArgument),
// naming source and key, for any other value, including 0.
int64_t optionalSize(const Json& json, const char* key, std::string_view source);

// True when the rank files have no lm_head.weight because the head uses the embedding table. This needs tied embeddings
// and whole rows of the table on every rank with the head: one pipeline stage, and a table not split along hidden_size.
inline bool sharesEmbedding(const ModelConfig& config) {
  return config.tie_word_embeddings && config.mapping.pp_size == 1 &&
         !(config.use_parallel_embedding && config.embedding_sharding_dim == 1 && config.mapping.tp_size > 1);
}

}  // namespace chorus
