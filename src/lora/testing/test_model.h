// A model of two layers with every kind of LoRA target, small enough to write down; shared by this folder's tests.
#pragma once

#include "checkpoint/weight_table.h"
#include "lora/module_ids.h"

namespace chorus {

struct TestModel {
  ModelConfig config;
  WeightTable table;

  // Hidden size 4, two query heads and one key/value head of size 2, MLP size 6.
  TestModel() {
    config.architecture = "LlamaForCausalLM";
    config.vocab_size = 8;
    config.hidden_size = config.embedding_size = 4;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.head_size = 2;
    config.intermediate_size = 6;
    using Axis = ShardRule::Axis;
    table = {{.name = "transformer.layers.{layer}.attention.qkv.weight",
              .shape = {8, 4},
              .slot = slotOf(LinearId::kQkv),
              .shard = {.axis = Axis::kRows, .parts = {4, 2, 2}, .head_rows = {0, 2, 2}},
              .lora_targets = {{kAttnQkv, "self_attn.qkv_proj", 0, 8},
                               {kAttnQ, "self_attn.q_proj", 0, 4, {}, TorchtuneRows::kPairs},
                               {kAttnK, "self_attn.k_proj", 4, 2, {}, TorchtuneRows::kPairs},
                               {kAttnV, "self_attn.v_proj", 6, 2}}},
             {.name = "transformer.layers.{layer}.mlp.fc.weight",
              .shape = {6, 4},
              .slot = slotOf(LinearId::kFc),
              .shard = {.axis = Axis::kRows},
              .lora_targets = {{kMlpHTo4H, "mlp.gate_proj", 0, 6}}},
             {.name = "transformer.layers.{layer}.mlp.proj.weight",
              .shape = {4, 6},
              .slot = slotOf(LinearId::kProj),
              .shard = {.axis = Axis::kColumns},
              .lora_targets = {{kMlp4HToH, "mlp.down_proj", 0, 4}}}};
    table[0].sources = {{"model.layers.{layer}.self_attn.q_proj.weight", 0, 4},
                        {"model.layers.{layer}.self_attn.k_proj.weight", 4, 2},
                        {"model.layers.{layer}.self_attn.v_proj.weight", 6, 2}};
    table[1].sources = {{"model.layers.{layer}.mlp.gate_proj.weight", 0, 6}};
    table[2].sources = {{"model.layers.{layer}.mlp.down_proj.weight", 0, 4}};
    table.push_back({.name = "transformer.layers.{layer}.attention.qkv.bias",
                     .shape = {8},
                     .slot = slotOf(LinearId::kQkv).bias(),
                     .shard = {.axis = Axis::kRows, .parts = {4, 2, 2}, .head_rows = {0, 2, 2}},
                     .sources = {{"model.layers.{layer}.self_attn.q_proj.bias", 0, 4},
                                 {"model.layers.{layer}.self_attn.k_proj.bias", 4, 2},
                                 {"model.layers.{layer}.self_attn.v_proj.bias", 6, 2}}});
    table.push_back({.name = "transformer.layers.{layer}.input_layernorm.weight",
                     .shape = {4},
                     .slot = slotOf(NormId::kAttentionIn),
                     .sources = {{"model.layers.{layer}.input_layernorm.weight", 0, 4}}});
    table.push_back({.name = "transformer.ln_f.weight",
                     .shape = {4},
                     .slot = slotOf(NormId::kFinal),
                     .stage = Stage::kLast,
                     .sources = {{"model.norm.weight", 0, 4}}});
    table.push_back({.name = "transformer.vocab_embedding.weight",
                     .shape = {8, 4},
                     .slot = slotOf(TableId::kTokens),
                     .stage = Stage::kFirst,
                     .sources = {{"model.embed_tokens.weight", 0, 8}}});
    table.push_back({.name = "lm_head.weight",
                     .shape = {8, 4},
                     .slot = slotOf(LinearId::kHead),
                     .stage = Stage::kLast,
                     .shard = {.axis = Axis::kRows, .pad_rows = true},
                     .sources = {{"lm_head.weight", 0, 8}}});
  }

  static constexpr int64_t kExperts = 2, kExpertSize = 3;

  // Returns this model with two experts of size 3 in layer 1 instead of its MLP.
  TestModel withExperts() {
    using Axis = ShardRule::Axis;
    const SourceRows activated = {.total = 2 * kExpertSize, .begin = 0},
                     other = {.total = 2 * kExpertSize, .begin = kExpertSize};
    for (WeightRow& row : table) {
      if (row.slot == slotOf(LinearId::kFc) || row.slot == slotOf(LinearId::kProj)) row.layers = {0};
    }
    table.push_back({.name = "transformer.layers.{layer}.mlp.fc.weight",
                     .shape = {2 * kExpertSize, 4},
                     .slot = slotOf(LinearId::kExpertsFc),
                     .shard = {.axis = Axis::kRows, .parts = {kExpertSize, kExpertSize}},
                     .lora_targets = {{kMoeGate, "mlp.experts.{expert}.up_proj", 0, kExpertSize},
                                      {kMoeHTo4H, "mlp.experts.{expert}.gate_proj", kExpertSize, kExpertSize},
                                      {kMoeGate, "mlp.experts.gate_up_proj", 0, kExpertSize, other},
                                      {kMoeHTo4H, "mlp.experts.gate_up_proj", kExpertSize, kExpertSize, activated}},
                     .experts = kExperts,
                     .layers = {1}});
    table.push_back({.name = "transformer.layers.{layer}.mlp.proj.weight",
                     .shape = {4, kExpertSize},
                     .slot = slotOf(LinearId::kExpertsProj),
                     .shard = {.axis = Axis::kColumns},
                     .sources = {{"model.layers.{layer}.mlp.experts.down_proj", 0, 4}},
                     .lora_targets = {{kMoe4HToH, "mlp.experts.{expert}.down_proj", 0, 4},
                                      {kMoe4HToH, "mlp.experts.down_proj", 0, 4}},
                     .experts = kExperts,
                     .layers = {1}});
    return *this;
  }
};

}  // namespace chorus
