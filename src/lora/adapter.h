// A LoRA adapter as it was read: whole (unsharded), unpacked, and checked against a model. peft_reader.h and
// tensor_adapter.h read adapters, shard.h cuts them for a rank, and the session packs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/weight_table.h"

namespace chorus {

// One adapted module: y = magnitude * (W x + scale * (B (A x) + bias)). For the token embedding, x is 1 at the token
// and 0 elsewhere, and W is the table with one column per token, so `in` is the number of tokens and `out` the hidden
// size.
struct AdapterModule {
  int32_t module_id = 0;    // module_ids.h
  std::string module_name;  // LoraTarget::module_name, or the whole name outside layers
  int32_t layer = 0;        // global id; -1 outside layers
  int64_t expert = -1;      // of a linear with experts; -1: the linear has none
  int64_t rank = 0;
  int64_t in = 0;
  int64_t out = 0;
  DType dtype = DType::kFloat32;  // of a and b: float32, float16 or bfloat16
  const std::byte* a = nullptr;   // [rank, in], aligned to its elements, in Adapter::storage
  const std::byte* b = nullptr;   // [out, rank], aligned and stored like a
  std::vector<float> bias;        // PEFT's lora_bias: [out]; empty if there is none
  std::vector<float> magnitude;   // DoRA: [out]; empty without DoRA
  // Whether `magnitude` is already divided by ||W + scale B A|| over each output row. If false, it is PEFT's vector m,
  // which must still be divided.
  bool magnitude_is_normalised = false;
  float scale = 1.0f;  // alpha / r or alpha / sqrt(r); 1 if B already contains the scale

  size_t aBytes() const { return static_cast<size_t>(rank * in) * dtypeSize(dtype); }
  size_t bBytes() const { return static_cast<size_t>(out * rank) * dtypeSize(dtype); }
};

// Values that replace the base's: those of PEFT's modules_to_save, of trained biases, or of an embedding or output head
// that was saved with the adapter.
struct AdapterWeight {
  WeightSlot slot;                 // slot of the table row; kHead even if the table has no row for it
  int32_t layer = kOutsideLayers;  // global id
  int64_t row_begin = 0;           // first row, counted in the table row's tensor
  int64_t rows = 0;
  int64_t cols = 1;  // 1 for norms and biases
  DType dtype = DType::kFloat32;
  const std::byte* data = nullptr;  // [rows, cols], aligned to its elements, in Adapter::storage
};

// Rows of the embedding table or the output head that are replaced one by one: PEFT's trainable_token_indices.
struct AdapterTokens {
  std::vector<int32_t> tokens;  // ascending
  int64_t cols = 0;             // values of a row: the hidden size, or a rank's share of it
  std::vector<float> rows;      // [tokens, cols]; empty if Adapter::only_shapes
  bool empty() const { return tokens.empty(); }
  int64_t elements() const { return static_cast<int64_t>(tokens.size()) * cols; }
};

struct Adapter {
  std::string name;
  std::vector<AdapterModule> modules;  // ascending by layer, then module id, then expert
  std::vector<AdapterWeight> weights;  // ascending by layer, slot and row_begin
  AdapterTokens embedding_tokens;
  AdapterTokens head_tokens;
  // Numbers of tokens that have logits and that the input may contain, if the adapter adds tokens; 0: the model's
  // number.
  int64_t vocab_size = 0;
  int64_t input_vocab_size = 0;
  int64_t max_rank = 0;
  bool uses_dora = false;
  bool adapts_parameters = false;  // PEFT's target_parameters
  // Names of tensors that are not used: training state, values that the base model or another tensor has too, and the
  // tensors of parts of the model that are not served (AdapterTarget::left_out), whose number is num_of_other_parts.
  std::vector<std::string> left_out;
  int64_t num_of_other_parts = 0;
  // Why the adapter does not change what the base model computes, as the end of a sentence about the adapter; "" if it
  // may change it, or if the values were not read.
  std::string without_effect;
  // Whether the values were not read, so that only sizes can be computed: a, b and data point to zeros, and
  // content_hash and the rows of tokens are empty.
  bool only_shapes = false;
  std::string content_hash;                          // SHA-256 of everything read: equal hashes mean equal adapters
  std::vector<std::shared_ptr<const void>> storage;  // owns the values; shared by copies
};

}  // namespace chorus
