// The weights of one rank by slot (checkpoint/weight_slot.h), as views of device or mapped memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/weight_slot.h"
#include "kernels/embedding/embedding.h"
#include "kernels/tensor.h"
#include "models/model_spec.h"

namespace chorus {

// Biases and norms are float32. A bias that the model does not have is null.
struct LinearWeights {
  PackedWeight weight;          // expert 0's if there are experts; the others follow it (expertOf)
  int64_t experts = 0;          // 0: the linear has one weight
  const float* bias = nullptr;  // [weight.out]
};
struct NormWeights {
  const float* weight = nullptr;  // [size]
  const float* bias = nullptr;    // [size]
  int64_t size = 0;
  bool empty() const { return weight == nullptr && bias == nullptr; }
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
// embedding's slots are set on the first stage, those of the final norm and the output head on the last one.
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

// A slot that a block reads, and its size on this rank.
struct SlotNeed {
  WeightSlot slot;
  int64_t rows = 0;  // of a linear or table; elements of a norm. kAnySize: checked elsewhere
  int64_t cols = 0;  // of a linear or table
  int64_t experts = 0;
};
inline constexpr int64_t kAnySize = -1;

// Checks that the slots of a layer, or those outside layers, are exactly the needed ones. The linears of attention and
// of an MLP may also have a bias. where: ends the sentence about a slot, for example "of layer 3". Throws
// Error(kInternal) for a slot that is needed and missing or has another size, and for one that nothing needs.
void checkSlots(const SlotWeights& weights, std::span<const SlotNeed> needs, std::string_view where);

}  // namespace chorus
