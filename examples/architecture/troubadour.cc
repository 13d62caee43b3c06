// Troubadour, a made-up decoder that differs from Llama in the ways that real architectures do:
//   - a norm before and after attention, and before and after the MLP (GLM-4 and Gemma 2 do the same);
//   - q, k and v fused in one tensor, by KV head: the group's query heads, its key, its value (Falcon, InternLM 2);
//   - rotary positions on the first part of a head, in adjacent pairs;
//   - gate and up fused in one tensor.
// This file is the whole architecture. The converter, completeness check, sharding over ranks, adapters, engine and
// decoder are derived from it.
#include "troubadour.h"

#include "lora/module_ids.h"
#include "models/source_config.h"
#include "models/weight_rows.h"

namespace chorus::example {
namespace {

using Axis = ShardRule::Axis;

// 1. The translation of the source's config. Every key is used, inert, or supported only at its default.
ModelConfig readConfig(const Json& json, std::string_view source) {
  SourceKeys keys = {.used = decoderKeys(), .inert = {}, .only_at_default = {}};
  keys.used.insert(keys.used.end(), {"attention_bias", "partial_rotary_factor"});
  checkSourceKeys(json, keys, source);
  ModelConfig config = readDecoderConfig(json, source);
  config.architecture = "TroubadourForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptj;
  readRotary(json, source, PartialRotary::kRead, config);
  config.finalize(source);
  return config;
}

// 2. The weight table: the checkpoint's tensors, their source, how they are sharded over ranks, what adapters may
//    target.
void addAttention(const ModelConfig& c, WeightTable& table) {
  const int64_t d = c.head_size;
  const int64_t q = c.num_attention_heads * d;
  const int64_t kv = c.num_key_value_heads * d;
  const int64_t all = q + 2 * kv;
  // Each KV head has these rows of the fused tensor: its query heads, its key, its value.
  const int64_t queries = q / c.num_key_value_heads;
  const int64_t group = queries + 2 * d;
  const SourceRows q_rows = {.total = all, .begin = 0, .block = queries, .stride = group};
  const SourceRows k_rows = {.total = all, .begin = queries, .block = d, .stride = group};
  const SourceRows v_rows = {.total = all, .begin = queries + d, .block = d, .stride = group};

  const WeightRow qkv =
      linearRow(slotOf(LinearId::kQkv), "transformer.layers.{layer}.attention.qkv.weight", all, c.hidden_size,
                {.axis = Axis::kRows, .parts = {q, kv, kv}, .head_rows = {0, d, d}},
                {{"model.layers.{layer}.self_attn.wqkv.weight", 0, q, q_rows},
                 {"model.layers.{layer}.self_attn.wqkv.weight", q, kv, k_rows},
                 {"model.layers.{layer}.self_attn.wqkv.weight", q + kv, kv, v_rows}},
                // An adapter may target the fused tensor, which adapts its three parts, or each part by its own name.
                {{kAttnQ, "self_attn.wqkv", 0, q, q_rows},
                 {kAttnK, "self_attn.wqkv", q, kv, k_rows},
                 {kAttnV, "self_attn.wqkv", q + kv, kv, v_rows},
                 {kAttnQ, "self_attn.q_proj", 0, q},
                 {kAttnK, "self_attn.k_proj", q, kv},
                 {kAttnV, "self_attn.v_proj", q + kv, kv}});
  table.push_back(qkv);
  if (c.attn_bias) table.push_back(biasOf(qkv));
  table.push_back(linearRow(slotOf(LinearId::kDense), "transformer.layers.{layer}.attention.dense.weight",
                            c.hidden_size, q, {.axis = Axis::kColumns},
                            {{"model.layers.{layer}.self_attn.o_proj.weight", 0, c.hidden_size}},
                            {{kAttnDense, "self_attn.o_proj", 0, c.hidden_size}}));
}

void addMlp(const ModelConfig& c, WeightTable& table) {
  const int64_t h = c.hidden_size;
  const int64_t f = c.intermediate_size;
  const SourceRows gate = {.total = 2 * f, .begin = 0};
  const SourceRows up = {.total = 2 * f, .begin = f};
  table.push_back(linearRow(slotOf(LinearId::kFc), "transformer.layers.{layer}.mlp.fc.weight", f, h,
                            {.axis = Axis::kRows}, {{"model.layers.{layer}.mlp.gate_up_proj.weight", 0, f, gate}},
                            {{kMlpHTo4H, "mlp.gate_up_proj", 0, f, gate}, {kMlpHTo4H, "mlp.gate_proj", 0, f}}));
  table.push_back(linearRow(slotOf(LinearId::kFc, f), "transformer.layers.{layer}.mlp.gate.weight", f, h,
                            {.axis = Axis::kRows}, {{"model.layers.{layer}.mlp.gate_up_proj.weight", 0, f, up}},
                            {{kMlpGate, "mlp.gate_up_proj", 0, f, up}, {kMlpGate, "mlp.up_proj", 0, f}}));
  table.push_back(linearRow(slotOf(LinearId::kProj), "transformer.layers.{layer}.mlp.proj.weight", h, f,
                            {.axis = Axis::kColumns}, {{"model.layers.{layer}.mlp.down_proj.weight", 0, h}},
                            {{kMlp4HToH, "mlp.down_proj", 0, h}}));
}

WeightTable weightTable(const ModelConfig& c) {
  const auto norm = [&](NormId id, const char* ours, const char* source) {
    return normRow(id, std::string("transformer.layers.{layer}.") + ours, c.hidden_size, Stage::kEveryLayer,
                   std::string("model.layers.{layer}.") + source);
  };
  WeightTable table;
  table.push_back(embeddingRow(c, "model.embed_tokens.weight"));
  table.push_back(norm(NormId::kAttentionIn, "input_layernorm.weight", "attention_in_norm.weight"));
  addAttention(c, table);
  table.push_back(norm(NormId::kAttentionOut, "post_layernorm.weight", "attention_out_norm.weight"));
  table.push_back(norm(NormId::kMlpIn, "pre_feedforward_layernorm.weight", "mlp_in_norm.weight"));
  addMlp(c, table);
  table.push_back(norm(NormId::kMlpOut, "post_feedforward_layernorm.weight", "mlp_out_norm.weight"));
  table.push_back(normRow(NormId::kFinal, "transformer.ln_f.weight", c.hidden_size, Stage::kLast, "model.norm.weight"));
  if (!sharesEmbedding(c)) table.push_back(headRow(c, "lm_head.weight", "model.embed_tokens.weight"));
  return table;
}

// 3. The structure.
ModelSpec structure(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.residual = ResidualForm::kSandwich;
  return modelSpec(config, layer);
}
}  // namespace

Architecture troubadourArchitecture() {
  return {
      .name = "TroubadourForCausalLM",
      .configFromHuggingFace = readConfig,
      .weightTable = weightTable,
      .modelSpec = structure,
      .ignored_sources = {"lm_head.weight"},
      .fields = {{"position_embedding_type", {"rope_gptj"}}, {"hidden_act", activationNames()}, {"attn_bias", {true}}},
      .models = {"Troubadour"},
      .structure = "norms before and after each block, RoPE on adjacent pairs of half of each head, fused projections"};
}

}  // namespace chorus::example
