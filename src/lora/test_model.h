// A model of two layers with every kind of LoRA target, small enough to write down; shared by this folder's tests.
#pragma once

#include "checkpoint/weight_table.h"
#include "lora/module_ids.h"

namespace chorus {

struct TestModel {
  ModelConfig config;
  WeightTable table;

  // hidden 4; two query heads and one key/value head of 2; MLP 6.
  TestModel() {
    config.architecture = "LlamaForCausalLM";
    config.vocab_size = 8;
    config.hidden_size = 4;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.intermediate_size = 6;
    using Axis = ShardRule::Axis;
    table = {{.name = "transformer.layers.{}.attention.qkv.weight",
              .shape = {8, 4},
              .shard = {.axis = Axis::kRows, .parts = {4, 2, 2}, .head_rows = {0, 2, 2}},
              .lora_targets = {{kAttnQkv, "self_attn.qkv_proj", 0, 8},
                               {kAttnQ, "self_attn.q_proj", 0, 4},
                               {kAttnK, "self_attn.k_proj", 4, 2},
                               {kAttnV, "self_attn.v_proj", 6, 2}}},
             {.name = "transformer.layers.{}.mlp.fc.weight",
              .shape = {6, 4},
              .shard = {.axis = Axis::kRows},
              .lora_targets = {{kMlpHTo4H, "mlp.gate_proj", 0, 6}}},
             {.name = "transformer.layers.{}.mlp.proj.weight",
              .shape = {4, 6},
              .shard = {.axis = Axis::kColumns},
              .lora_targets = {{kMlp4HToH, "mlp.down_proj", 0, 4}}}};
  }
};

}  // namespace chorus
