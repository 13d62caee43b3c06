// A LoRA adapter as read: whole (unsharded), unpacked, checked against a model. Sources make it (peft_reader.h,
// tensor_adapter.h), shard.h cuts it for a rank, the session packs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/weight_table.h"

namespace chorus {

// One adapted module: y = magnitude * (W x + scale * (B (A x) + bias)). Of the token embedding x is 1 at the token and
// 0 elsewhere, and W the table with a token to a column: in counts tokens, out hidden sizes.
struct AdapterModule {
  int32_t module_id = 0;    // module_ids.h
  std::string module_name;  // LoraTarget::module_name, or the whole name outside layers
  int32_t layer = 0;        // global id; -1 outside layers
  int64_t rank = 0;
  int64_t in = 0;
  int64_t out = 0;
  DType dtype = DType::kFloat32;  // of a and b: float32, float16 or bfloat16
  const std::byte* a = nullptr;   // [rank, in], aligned to its elements, in Adapter::storage
  const std::byte* b = nullptr;   // [out, rank], likewise
  std::vector<float> bias;        // PEFT's lora_bias: [out]; empty without
  std::vector<float> magnitude;   // DoRA: [out]; empty without DoRA
  // false: PEFT's magnitude vector m, to be divided by ||W + scale B A|| over each output row; true: divided already.
  bool magnitude_is_normalised = false;
  float scale = 1.0f;  // alpha / r or alpha / sqrt(r); 1 where the source folds it into B

  size_t aBytes() const { return static_cast<size_t>(rank * in) * dtypeSize(dtype); }
  size_t bBytes() const { return static_cast<size_t>(out * rank) * dtypeSize(dtype); }
};

// Values that stand for the base's: of PEFT's modules_to_save, of trained biases, of an embedding or output head that
// was saved along.
struct AdapterWeight {
  WeightSlot slot;                 // of the table row; kHead also in a model that has no row for it (sharesEmbedding)
  int32_t layer = kOutsideLayers;  // global id
  int64_t row_begin = 0;           // of the table row
  int64_t rows = 0;
  int64_t cols = 1;  // 1 of norms and biases
  DType dtype = DType::kFloat32;
  const std::byte* data = nullptr;  // [rows, cols], aligned to its elements, in Adapter::storage
};

// Rows of the embedding table or the output head that are replaced one by one: PEFT's trainable_token_indices.
struct AdapterTokens {
  std::vector<int32_t> tokens;  // ascending
  std::vector<float> rows;      // [tokens, hidden]
  bool empty() const { return tokens.empty(); }
};

struct Adapter {
  std::string name;
  std::vector<AdapterModule> modules;  // ascending by layer, then module id
  std::vector<AdapterWeight> weights;  // ascending by layer, slot and row_begin
  AdapterTokens embedding_tokens;
  AdapterTokens head_tokens;
  // Tokens that its logits are of and that it takes, where it adds some; 0: the model's.
  int64_t vocab_size = 0;
  int64_t input_vocab_size = 0;
  int64_t max_rank = 0;
  bool uses_dora = false;
  bool adapts_parameters = false;  // by name: PEFT's target_parameters
  // The values were not read: a, b and data point to zeros, and content_hash is empty. It serves to know sizes.
  bool only_shapes = false;
  std::string content_hash;                          // SHA-256 of everything read: equal hashes mean equal adapters
  std::vector<std::shared_ptr<const void>> storage;  // what a and b point into; shared by copies
};

}  // namespace chorus
