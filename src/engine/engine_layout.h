// The tensors of a rank file: which slot of the runtime each one is, and which checkpoint tensors it is made of.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/weight_table.h"
#include "engine/engine_file.h"

namespace chorus {

// An engine tensor holds all of a slot's weight or bias that the rank has, so the rows of a fused linear are one
// tensor.
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

  std::vector<EngineTensor> tensors;  // layers, then globals, in checkpoint order
  std::vector<Place> places;          // of tensors, one by one
  std::vector<Piece> pieces;          // scales have the place of their integers
};

// The layout of one rank's file, in which a model that ties its output head to its embedding has a copy of it. tensors
// and the weight table that they were made of must outlive the result. Throws Error(kUnsupported) when the parts of one
// engine tensor are quantised differently.
EngineLayout engineLayout(const std::vector<RankTensor>& tensors, const ModelConfig& config, int32_t rank);

// Rows of the output head that each tensor-parallel rank holds, and of an embedding table that is cut along the
// vocabulary: the last ranks' may be padding.
int64_t vocabularyShare(const ModelConfig& config);

// A model without lm_head.weight takes its output head from the rank's embedding table, which holds whole rows: rows
// [begin, begin + rows) of it, zeros up to vocabularyShare.
struct TiedHead {
  int64_t begin = 0;
  int64_t rows = 0;
};
TiedHead tiedHead(const ModelConfig& config, int32_t rank);

// Bytes of one rank's tensors in an engine of this model.
uint64_t packedWeightBytes(const WeightTable& table, const ModelConfig& config, int32_t rank);

}  // namespace chorus
