// The tensors of a rank file, with the slot of each one and the checkpoint tensors of which it is made.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/weight_table.h"
#include "engine/engine_file.h"

namespace chorus {

// An engine tensor is all of a slot's weight or bias on this rank. The checkpoint tensors of a fused linear therefore
// become one engine tensor.
struct EngineLayout {
  // The slot of an engine tensor.
  struct Place {
    int32_t layer = 0;               // local id, or kOutsideLayers
    WeightSlot slot;                 // with row_begin 0
    const WeightRow* row = nullptr;  // the slot's first row in the table
  };
  // Rows [first, first + rows) of a checkpoint tensor are rows [row_begin, row_begin + rows) of tensors[target].
  struct Piece {
    const RankTensor* source = nullptr;
    int64_t first = 0;
    int64_t rows = 0;
    size_t target = 0;
    int64_t row_begin = 0;
  };

  std::vector<EngineTensor> tensors;  // tensors of layers, then tensors outside layers, in checkpoint order
  std::vector<Place> places;          // one for each of `tensors`
  std::vector<Piece> pieces;          // scales have the target of their integers
};

// The layout of one rank's file. A model with a tied output head has a copy of its embedding as the head. `tensors` and
// the weight table to which they refer must outlive the result. Throws Error(kUnsupported) if the checkpoint tensors of
// one engine tensor are quantised differently.
EngineLayout engineLayout(const std::vector<RankTensor>& tensors, const ModelConfig& config, int32_t rank);

// Rows of the output head that each tensor-parallel rank holds, and of an embedding table that is cut along the
// vocabulary. On the last ranks, some of them may be padding.
int64_t vocabularyShare(const ModelConfig& config);

// The rows of a rank's embedding table that are its output head, in a model without lm_head.weight: [begin, begin +
// rows). Zeros follow up to vocabularyShare() rows.
struct TiedHead {
  int64_t begin = 0;
  int64_t rows = 0;
};
TiedHead tiedHead(const ModelConfig& config, int32_t rank);

// Bytes of one rank's tensors in an engine of this model.
uint64_t packedWeightBytes(const WeightTable& table, const ModelConfig& config, int32_t rank,
                           const WeightPacker& packer);

}  // namespace chorus
