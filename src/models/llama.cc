#include "models/llama.h"

#include "base/error.h"
#include "lora/module_ids.h"
#include "models/source_config.h"

namespace chorus {
namespace {

using Axis = ShardRule::Axis;

ModelConfig readConfig(const Json& json, std::string_view source) {
  ModelConfig config;
  config.hidden_size = jsonGet<int64_t>(json, "hidden_size", source);
  config.intermediate_size = jsonGet<int64_t>(json, "intermediate_size", source);
  config.num_hidden_layers = jsonGet<int32_t>(json, "num_hidden_layers", source);
  config.num_attention_heads = jsonGet<int32_t>(json, "num_attention_heads", source);
  config.num_key_value_heads = jsonGetOr<int32_t>(json, "num_key_value_heads", 0, source);
  config.head_size = jsonGetOr<int64_t>(json, "head_dim", 0, source);
  config.vocab_size = jsonGet<int64_t>(json, "vocab_size", source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 2048, source);
  config.norm_epsilon = jsonGetOr(json, "rms_norm_eps", 1e-6, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  config.tie_word_embeddings = jsonGetOr(json, "tie_word_embeddings", false, source);
  config.hidden_act = jsonGetOr<std::string>(json, "hidden_act", "silu", source);
  if (config.hidden_act == "swish") config.hidden_act = "silu";
  if (config.hidden_act != "silu") {
    fail(ErrorCode::kUnsupported, "{}: 'hidden_act' is supported only at its default silu, not '{}'", source,
         config.hidden_act);
  }
  readRotary(json, source, config);
  return config;
}

const SourceKeys kCommonKeys = {
    .used = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
             "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act",
             "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters",
             "original_max_position_embeddings"},
    .inert = {},
    .only_at_default = {{"partial_rotary_factor", 1.0}}};

ModelConfig llamaConfig(const Json& json, std::string_view source) {
  SourceKeys keys = kCommonKeys;
  keys.used.insert(keys.used.end(), {"attention_bias", "mlp_bias"});
  keys.only_at_default.emplace_back("pretraining_tp", 1);
  checkSourceKeys(json, keys, source);
  ModelConfig config = readConfig(json, source);
  config.architecture = "LlamaForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.mlp_bias = jsonGetOr(json, "mlp_bias", false, source);
  config.finalize(source);
  return config;
}

ModelConfig mistralConfig(const Json& json, std::string_view source) {
  SourceKeys keys = kCommonKeys;
  keys.used.push_back("sliding_window");
  checkSourceKeys(json, keys, source);
  ModelConfig config = readConfig(json, source);
  config.architecture = "MistralForCausalLM";
  // transformers gives a Mistral config that does not mention the key a window of 4096; files of models without one
  // say null.
  const auto window = json.find("sliding_window");
  const int64_t size = window == json.end() ? 4096
                       : window->is_null() ? config.max_position_embeddings
                                           : jsonGet<int64_t>(json, "sliding_window", source);
  if (size < config.max_position_embeddings) {
    fail(ErrorCode::kUnsupported, "{}: 'sliding_window' {} below max_position_embeddings {} is not supported", source,
         size, config.max_position_embeddings);
  }
  config.finalize(source);
  return config;
}

WeightRow linear(std::string name, int64_t out, int64_t in, ShardRule shard, std::vector<WeightSource> sources,
                 std::vector<LoraTarget> targets) {
  return {.name = std::move(name),
          .shape = {out, in},
          .role = WeightRole::kLinear,
          .shard = std::move(shard),
          .sources = std::move(sources),
          .lora_targets = std::move(targets),
          .quantisable = true};
}

WeightRow norm(std::string name, int64_t size, Stage stage, std::string source) {
  return {.name = std::move(name),
          .shape = {size},
          .role = WeightRole::kNorm,
          .stage = stage,
          .sources = {{std::move(source), 0, size}}};
}

// The bias of a linear row: cut as its output rows are; whole where the linear is cut along its input, because it is
// added once, after the ranks' sums are added up.
WeightRow biasOf(const WeightRow& row) {
  const auto biasName = [](const std::string& weight) {
    return weight.substr(0, weight.size() - std::string_view("weight").size()) + "bias";
  };
  WeightRow bias = {.name = biasName(row.name), .shape = {row.shape[0]}, .role = WeightRole::kBias, .stage = row.stage};
  if (row.shard.axis == Axis::kRows) bias.shard = row.shard;
  for (const WeightSource& source : row.sources) {
    bias.sources.push_back({biasName(source.name), source.row_begin, source.rows});
  }
  return bias;
}

void addAttention(const ModelConfig& c, WeightTable& table) {
  const int64_t d = c.head_size;
  const int64_t q = c.num_attention_heads * d;
  const int64_t kv = c.num_key_value_heads * d;
  const int64_t all = q + 2 * kv;
  WeightRow qkv = linear("transformer.layers.{}.attention.qkv.weight", all, c.hidden_size,
                         {.axis = Axis::kRows, .parts = {q, kv, kv}, .head_rows = {0, d, d}},
                         {{"model.layers.{}.self_attn.q_proj.weight", 0, q},
                          {"model.layers.{}.self_attn.k_proj.weight", q, kv},
                          {"model.layers.{}.self_attn.v_proj.weight", q + kv, kv}},
                         {{kAttnQkv, "self_attn.qkv_proj", 0, all},
                          {kAttnQ, "self_attn.q_proj", 0, q},
                          {kAttnK, "self_attn.k_proj", q, kv},
                          {kAttnV, "self_attn.v_proj", q + kv, kv}});
  WeightRow dense = linear("transformer.layers.{}.attention.dense.weight", c.hidden_size, q, {.axis = Axis::kColumns},
                           {{"model.layers.{}.self_attn.o_proj.weight", 0, c.hidden_size}},
                           {{kAttnDense, "self_attn.o_proj", 0, c.hidden_size}});
  for (WeightRow* row : {&qkv, &dense}) {
    table.push_back(*row);
    if (c.attn_bias) table.push_back(biasOf(*row));
  }
}

void addMlp(const ModelConfig& c, WeightTable& table) {
  const int64_t h = c.hidden_size;
  const int64_t f = c.intermediate_size;
  const WeightRow rows[] = {
      linear("transformer.layers.{}.mlp.fc.weight", f, h, {.axis = Axis::kRows},
             {{"model.layers.{}.mlp.gate_proj.weight", 0, f}}, {{kMlpHTo4H, "mlp.gate_proj", 0, f}}),
      linear("transformer.layers.{}.mlp.gate.weight", f, h, {.axis = Axis::kRows},
             {{"model.layers.{}.mlp.up_proj.weight", 0, f}}, {{kMlpGate, "mlp.up_proj", 0, f}}),
      linear("transformer.layers.{}.mlp.proj.weight", h, f, {.axis = Axis::kColumns},
             {{"model.layers.{}.mlp.down_proj.weight", 0, h}}, {{kMlp4HToH, "mlp.down_proj", 0, h}})};
  for (const WeightRow& row : rows) {
    table.push_back(row);
    if (c.mlp_bias) table.push_back(biasOf(row));
  }
}

WeightTable llamaTable(const ModelConfig& c) {
  const int64_t v = c.vocab_size;
  const int64_t h = c.hidden_size;
  ShardRule embedding_shard;
  if (c.use_parallel_embedding) {
    embedding_shard.axis = c.embedding_sharding_dim == 0 ? Axis::kRows : Axis::kColumns;
    embedding_shard.pad_rows = c.embedding_sharding_dim == 0;
  }
  WeightTable table;
  table.push_back({.name = "transformer.vocab_embedding.weight",
                   .shape = {v, h},
                   .role = WeightRole::kEmbedding,
                   .stage = Stage::kFirst,
                   .shard = embedding_shard,
                   .sources = {{"model.embed_tokens.weight", 0, v}}});
  table.push_back(norm("transformer.layers.{}.input_layernorm.weight", h, Stage::kEveryLayer,
                       "model.layers.{}.input_layernorm.weight"));
  addAttention(c, table);
  table.push_back(norm("transformer.layers.{}.post_layernorm.weight", h, Stage::kEveryLayer,
                       "model.layers.{}.post_attention_layernorm.weight"));
  addMlp(c, table);
  table.push_back(norm("transformer.ln_f.weight", h, Stage::kLast, "model.norm.weight"));
  if (!sharesEmbedding(c)) {
    table.push_back({.name = "lm_head.weight",
                     .shape = {v, h},
                     .role = WeightRole::kLmHead,
                     .stage = Stage::kLast,
                     .shard = {.axis = Axis::kRows, .pad_rows = true},
                     .sources = {{c.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight", 0, v}}});
  }
  return table;
}

ModelSpec llamaSpec(const ModelConfig& config) {
  const LayerSpec layer = {.residual = ResidualForm::kPre,
                           .norm = NormKind::kRms,
                           .mlp = MlpKind::kGated,
                           .activation = Activation::kSilu};
  return {.layers = std::vector<LayerSpec>(static_cast<size_t>(config.num_hidden_layers), layer)};
}

// Old files store the rotary frequencies, which follow from the config. lm_head.weight is unexpected only where the
// embeddings are tied, and transformers then reads the embedding instead.
const std::vector<std::string> kIgnoredSources = {"*.rotary_emb.inv_freq", "lm_head.weight"};
}  // namespace

Architecture llamaArchitecture() {
  return {"LlamaForCausalLM", llamaConfig, llamaTable, llamaSpec, kIgnoredSources};
}
Architecture mistralArchitecture() {
  return {"MistralForCausalLM", mistralConfig, llamaTable, llamaSpec, kIgnoredSources};
}

}  // namespace chorus
