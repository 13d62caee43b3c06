#include "models/llama_blocks.h"

#include "base/error.h"
#include "lora/module_ids.h"
#include "models/weight_rows.h"

namespace chorus {
namespace {

using Axis = ShardRule::Axis;

void addAttention(const ModelConfig& c, const LlamaBiases& biases, WeightTable& table) {
  const int64_t d = c.head_size;
  const int64_t q = c.num_attention_heads * d;
  const int64_t kv = c.num_key_value_heads * d;
  const int64_t all = q + 2 * kv;
  const WeightRow qkv = linearRow(slotOf(LinearId::kQkv), "transformer.layers.{layer}.attention.qkv.weight", all,
                                  c.hidden_size, {.axis = Axis::kRows, .parts = {q, kv, kv}, .head_rows = {0, d, d}},
                                  {{"model.layers.{layer}.self_attn.q_proj.weight", 0, q},
                                   {"model.layers.{layer}.self_attn.k_proj.weight", q, kv},
                                   {"model.layers.{layer}.self_attn.v_proj.weight", q + kv, kv}},
                                  {{kAttnQkv, "self_attn.qkv_proj", 0, all},
                                   {kAttnQ, "self_attn.q_proj", 0, q},
                                   {kAttnK, "self_attn.k_proj", q, kv},
                                   {kAttnV, "self_attn.v_proj", q + kv, kv}});
  const WeightRow dense =
      linearRow(slotOf(LinearId::kDense), "transformer.layers.{layer}.attention.dense.weight", c.hidden_size, q,
                {.axis = Axis::kColumns}, {{"model.layers.{layer}.self_attn.o_proj.weight", 0, c.hidden_size}},
                {{kAttnDense, "self_attn.o_proj", 0, c.hidden_size}});
  table.push_back(qkv);
  if (biases.qkv) table.push_back(biasOf(qkv));
  table.push_back(dense);
  if (biases.dense) table.push_back(biasOf(dense));
}

void addMlp(const ModelConfig& c, bool biases, WeightTable& table) {
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
    if (biases) table.push_back(biasOf(row));
  }
}
}  // namespace

SourceKeys llamaKeys() {
  return {.used = decoderKeys(), .inert = {}, .only_at_default = {{"partial_rotary_factor", 1.0}}};
}

ModelConfig readLlamaConfig(const Json& json, std::string_view source) {
  ModelConfig config = readDecoderConfig(json, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRefused, config);
  return config;
}

void refuseSlidingWindow(int64_t window, const ModelConfig& config, std::string_view source) {
  if (window >= config.max_position_embeddings) return;
  fail(ErrorCode::kUnsupported, "{}: 'sliding_window' {} below max_position_embeddings {} is not supported", source,
       window, config.max_position_embeddings);
}

WeightTable llamaTable(const ModelConfig& c, const LlamaBiases& biases) {
  const int64_t h = c.hidden_size;
  WeightTable table;
  table.push_back(embeddingRow(c, "model.embed_tokens.weight"));
  table.push_back(normRow(NormId::kAttentionIn, "transformer.layers.{layer}.input_layernorm.weight", h,
                          Stage::kEveryLayer, "model.layers.{layer}.input_layernorm.weight"));
  addAttention(c, biases, table);
  table.push_back(normRow(NormId::kMlpIn, "transformer.layers.{layer}.post_layernorm.weight", h, Stage::kEveryLayer,
                          "model.layers.{layer}.post_attention_layernorm.weight"));
  addMlp(c, biases.mlp, table);
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

std::vector<std::string> llamaIgnoredSources() { return {"*.rotary_emb.inv_freq", "lm_head.weight"}; }

std::vector<FieldValues> llamaFields() {
  return {{"position_embedding_type", {"rope_gpt_neox", "rope_gptj"}}, {"hidden_act", activationNames()}};
}

}  // namespace chorus
