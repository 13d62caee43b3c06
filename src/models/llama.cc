#include "models/llama.h"

#include "base/error.h"
#include "lora/module_ids.h"
#include "models/source_config.h"
#include "models/weight_rows.h"

namespace chorus {
namespace {

using Axis = ShardRule::Axis;

const SourceKeys kCommonKeys = {
    .used = decoderKeys(), .inert = {}, .only_at_default = {{"partial_rotary_factor", 1.0}}};

ModelConfig readConfig(const Json& json, std::string_view source) {
  ModelConfig config = readDecoderConfig(json, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRefused, config);
  return config;
}

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
                       : window->is_null()  ? config.max_position_embeddings
                                            : jsonGet<int64_t>(json, "sliding_window", source);
  if (size < config.max_position_embeddings) {
    fail(ErrorCode::kUnsupported, "{}: 'sliding_window' {} below max_position_embeddings {} is not supported", source,
         size, config.max_position_embeddings);
  }
  config.finalize(source);
  return config;
}

void addAttention(const ModelConfig& c, WeightTable& table) {
  const int64_t d = c.head_size;
  const int64_t q = c.num_attention_heads * d;
  const int64_t kv = c.num_key_value_heads * d;
  const int64_t all = q + 2 * kv;
  WeightRow qkv = linearRow(slotOf(LinearId::kQkv), "transformer.layers.{layer}.attention.qkv.weight", all,
                            c.hidden_size, {.axis = Axis::kRows, .parts = {q, kv, kv}, .head_rows = {0, d, d}},
                            {{"model.layers.{layer}.self_attn.q_proj.weight", 0, q},
                             {"model.layers.{layer}.self_attn.k_proj.weight", q, kv},
                             {"model.layers.{layer}.self_attn.v_proj.weight", q + kv, kv}},
                            {{kAttnQkv, "self_attn.qkv_proj", 0, all},
                             {kAttnQ, "self_attn.q_proj", 0, q},
                             {kAttnK, "self_attn.k_proj", q, kv},
                             {kAttnV, "self_attn.v_proj", q + kv, kv}});
  WeightRow dense =
      linearRow(slotOf(LinearId::kDense), "transformer.layers.{layer}.attention.dense.weight", c.hidden_size, q,
                {.axis = Axis::kColumns}, {{"model.layers.{layer}.self_attn.o_proj.weight", 0, c.hidden_size}},
                {{kAttnDense, "self_attn.o_proj", 0, c.hidden_size}});
  for (WeightRow* row : {&qkv, &dense}) {
    table.push_back(*row);
    if (c.attn_bias) table.push_back(biasOf(*row));
  }
}

void addMlp(const ModelConfig& c, WeightTable& table) {
  const int64_t h = c.hidden_size;
  const int64_t f = c.intermediate_size;
  // An adapter on both at once has the rows of gate_proj first.
  const SourceRows first = {.total = 2 * f, .begin = 0};
  const SourceRows second = {.total = 2 * f, .begin = f};
  const WeightRow rows[] = {
      linearRow(slotOf(LinearId::kFc), "transformer.layers.{layer}.mlp.fc.weight", f, h, {.axis = Axis::kRows},
                {{"model.layers.{layer}.mlp.gate_proj.weight", 0, f}},
                {{kMlpHTo4H, "mlp.gate_proj", 0, f}, {kMlpHTo4H, "mlp.gate_up_proj", 0, f, first}}),
      linearRow(slotOf(LinearId::kFc, f), "transformer.layers.{layer}.mlp.gate.weight", f, h, {.axis = Axis::kRows},
                {{"model.layers.{layer}.mlp.up_proj.weight", 0, f}},
                {{kMlpGate, "mlp.up_proj", 0, f}, {kMlpGate, "mlp.gate_up_proj", 0, f, second}}),
      linearRow(slotOf(LinearId::kProj), "transformer.layers.{layer}.mlp.proj.weight", h, f, {.axis = Axis::kColumns},
                {{"model.layers.{layer}.mlp.down_proj.weight", 0, h}}, {{kMlp4HToH, "mlp.down_proj", 0, h}})};
  for (const WeightRow& row : rows) {
    table.push_back(row);
    if (c.mlp_bias) table.push_back(biasOf(row));
  }
}

WeightTable llamaTable(const ModelConfig& c) {
  const int64_t h = c.hidden_size;
  WeightTable table;
  table.push_back(embeddingRow(c, "model.embed_tokens.weight"));
  table.push_back(normRow(NormId::kAttentionIn, "transformer.layers.{layer}.input_layernorm.weight", h,
                          Stage::kEveryLayer, "model.layers.{layer}.input_layernorm.weight"));
  addAttention(c, table);
  table.push_back(normRow(NormId::kMlpIn, "transformer.layers.{layer}.post_layernorm.weight", h, Stage::kEveryLayer,
                          "model.layers.{layer}.post_attention_layernorm.weight"));
  addMlp(c, table);
  table.push_back(normRow(NormId::kFinal, "transformer.ln_f.weight", h, Stage::kLast, "model.norm.weight"));
  if (!sharesEmbedding(c)) table.push_back(headRow(c, "lm_head.weight", "model.embed_tokens.weight"));
  return table;
}

ModelSpec llamaSpec(const ModelConfig& config) {
  const LayerSpec layer = {.residual = ResidualForm::kPre,
                           .norm = NormKind::kRms,
                           .mlp = MlpKind::kGated,
                           .activation = activationNamed(config.hidden_act)};
  return {.layers = std::vector<LayerSpec>(static_cast<size_t>(config.num_hidden_layers), layer)};
}

// Old files store the rotary frequencies, which follow from the config. lm_head.weight is unexpected only where the
// embeddings are tied, and transformers then reads the embedding instead.
const std::vector<std::string> kIgnoredSources = {"*.rotary_emb.inv_freq", "lm_head.weight"};

// What the table and the spec above make of a config's structural fields.
std::vector<FieldValues> llamaFields() {
  return {{"position_embedding_type", {"rope_gpt_neox", "rope_gptj"}},
          {"hidden_act", activationNames()},
          {"attn_bias", {true}},
          {"mlp_bias", {true}}};
}
}  // namespace

Architecture llamaArchitecture() {
  return {.name = "LlamaForCausalLM",
          .configFromHuggingFace = llamaConfig,
          .weightTable = llamaTable,
          .modelSpec = llamaSpec,
          .ignored_sources = kIgnoredSources,
          .fields = llamaFields(),
          .aliases = {"LLaMAForCausalLM"}};
}

Architecture mistralArchitecture() {
  return {.name = "MistralForCausalLM",
          .configFromHuggingFace = mistralConfig,
          .weightTable = llamaTable,
          .modelSpec = llamaSpec,
          .ignored_sources = kIgnoredSources,
          .fields = llamaFields()};
}

}  // namespace chorus
