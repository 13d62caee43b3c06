// The weights of one rank by slot (checkpoint/weight_slot.h), as views of device or mapped memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/weight_slot.h"
#include "kernels/embedding/embedding.h"
#include "kernels/tensor.h"
#include "models/layer_spec.h"

namespace chorus {

// Biases and norms are float32. A bias that the model does not have is null.
struct LinearWeights {
  PackedWeight weight;
  const float* bias = nullptr;  // [weight.out]
};
struct NormWeights {
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;    // [hidden]
};
struct TableWeights {
  EmbeddingTable table;
  int64_t cols = 0;
};

// The slots of one layer, or those outside layers. A slot that the model does not have holds null pointers.
struct SlotWeights {
  std::array<LinearWeights, kNumLinears> linears;
  std::array<NormWeights, kNumNorms> norms;
  std::array<TableWeights, kNumTables> tables;

  const LinearWeights& operator[](LinearId id) const { return linears[static_cast<size_t>(id)]; }
  const NormWeights& operator[](NormId id) const { return norms[static_cast<size_t>(id)]; }
  const TableWeights& operator[](TableId id) const { return tables[static_cast<size_t>(id)]; }
  LinearWeights& operator[](LinearId id) { return linears[static_cast<size_t>(id)]; }
  NormWeights& operator[](NormId id) { return norms[static_cast<size_t>(id)]; }
  TableWeights& operator[](TableId id) { return tables[static_cast<size_t>(id)]; }
};

// Sizes are this rank's: the layers of its pipeline stage, and its shard of what is cut over tensor-parallel ranks. The
// token table is set on the first stage, the final norm and the output head on the last one.
struct ModelWeights {
  std::vector<SlotWeights> layers;
  SlotWeights outside;  // slots that belong to no layer

  // layer: local id, or kOutsideLayers.
  const SlotWeights& at(int32_t layer) const {
    return layer == kOutsideLayers ? outside : layers[static_cast<size_t>(layer)];
  }
  SlotWeights& at(int32_t layer) { return layer == kOutsideLayers ? outside : layers[static_cast<size_t>(layer)]; }

  // Calls fn with a reference to each pointer to weights: const void*& or const float*&.
  template <typename F>
  void forEachPointer(F&& fn) {
    for (auto layer = kOutsideLayers; layer < static_cast<int32_t>(layers.size()); ++layer) {
      SlotWeights& slots = at(layer);
      for (LinearWeights& linear : slots.linears) {
        fn(linear.weight.data);
        fn(linear.bias);
      }
      for (NormWeights& norm : slots.norms) {
        fn(norm.weight);
        fn(norm.bias);
      }
      for (TableWeights& table : slots.tables) fn(table.table.data);
    }
  }
};

// Sizes of one tensor-parallel rank's network.
struct DecoderShape {
  int64_t vocab_size = 0;    // of the model
  int64_t head_rows = 0;     // rows of the output head on this rank
  int64_t added_tokens = 0;  // maximum number of tokens that an adapter adds to the model's
  int64_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t intermediate_size = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;  // of the products of queries and keys

  int64_t headsWidth() const { return num_heads * head_size; }
  int64_t qkvWidth() const { return headsWidth() + 2 * num_kv_heads * head_size; }
};

// Checks that the architecture's weight table fits its structure. Throws Error(kInternal) for a slot that a layer needs
// and the table lacks, a norm that the layer does not use, and a linear of another shape.
void checkWeights(const ModelWeights& weights, std::span<const LayerSpec> layers, const DecoderShape& shape,
                  bool first_stage, bool last_stage);

}  // namespace chorus
