// Reads the LoRA adapters that NeMo saves for Megatron's GPT, in both variants: with fused and with separate
// projections.
//
// Names of tensors: "...layers.N.self_attention.adapter_layer." or "...layers.N.mlp.adapter_layer.", one of the names
// below, ".linear_in.weight" (A) or ".linear_out.weight" (B).
//   lora_kqv_adapter                                  rows of B by KV group: its query heads, its key, its value
//   lora_unfused_kqv_adapter.{q,k,v}_adapter
//   lora_dense_attention_adapter
//   lora_hto4h_adapter                                in a gated MLP the activated half, then the other half
//   lora_unfused_hto4h_adapter.{gate,up}_adapter      gate: the activated half
//   lora_4htoh_adapter
// Ranks: A of the linears before which Megatron gathers (all but dense and 4htoh) is cut along the rank, A of the
// others along the input; B is cut along the output, each half of a gated one on its own. Layers are numbered within
// their pipeline stage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_file.h"
#include "lora/adapter.h"
#include "lora/nemo_files.h"
#include "lora/peft_reader.h"

namespace chorus {

// The numbers of the base model that determine the order of an adapter's rows.
struct NemoShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t intermediate_size = 0;

  // Reads the shape from the config of the model that the adapter was trained for, which is part of the archive. Throws
  // Error that names the missing field.
  static NemoShape of(const Json& config, std::string_view source);
  static NemoShape of(const ModelConfig& config);
};

// An adapted linear with the shards of all ranks joined, and with the rows in TensorRT-LLM's order: q, k, v for
// attn_qkv, the activated half first for mlp_gate_up.
struct NemoModule {
  int32_t module_id = 0;  // module_ids.h
  int32_t layer = 0;      // global
  std::string name;       // of its tensors, without ".linear_in.weight"
  TensorView a, b;        // [rank, in], [out, rank]; without bytes if the values were not read
};

struct NemoModules {
  std::vector<NemoModule> modules;  // in the order of the first shard's tensors
  float scale = 1.0f;               // alpha / adapter_dim
  std::vector<std::shared_ptr<const void>> storage;
};

// The adapter's modules, checked against each other and against the config: names, pairs of A and B, ranks, shards,
// dtypes; values are finite. Throws Error that names the tensor or field. The tensors are used in place where the order
// is right; what is copied is together at most three times the archive. throttle: is charged for the values that are
// checked or copied; may be null.
NemoModules readNemoModules(const NemoFiles& files, const NemoShape& shape, BackgroundThrottle* throttle = nullptr);

// Checks the modules against the model, like readPeftAdapter.
Adapter readNemoAdapter(const NemoFiles& files, std::string name, const AdapterTarget& target);

}  // namespace chorus
