// The place of a weight in the runtime. Every row of the weight table names its slot; code that handles weights
// (loading, packing, adapters) loops over slots.
#pragma once

#include <cassert>
#include <compare>
#include <cstdint>

namespace chorus {

// Linears of a decoder layer, and those outside layers. A linear may have a bias.
enum class LinearId {
  kQkv,    // query, key and value heads, in this order
  kDense,  // attention's output projection
  kFc,     // the MLP's input projection; in a gated MLP, the activated half, then the other half
  kProj,   // the MLP's output projection
  kHead,   // the output head, outside layers
  // Outside layers, if the embedding and the hidden size differ: between the embedding and the first layer, and between
  // the last norm and the output head.
  kProjectIn,
  kProjectOut,
  // A mixture of experts. kExpertsFc and kExpertsProj hold one weight for each expert.
  kRouter,       // [experts, hidden]
  kExpertsFc,    // input projections; if they are gated, the rows of the half without activation come first
  kExpertsProj,  // output projections
  // The expert that takes every row: its projections, with the halves in the experts' order, and its gate [1, hidden].
  kSharedFc,
  kSharedProj,
  kSharedGate,
};
inline constexpr int kNumLinears = 13;

// Norms before and after the blocks of a decoder layer, norms inside attention, and norms outside layers. ResidualForm
// (models/model_spec.h) determines which of them a layer has.
enum class NormId {
  kAttentionIn,
  kAttentionOut,
  kMlpIn,
  kMlpOut,
  kFinal,      // before the output head, outside layers
  kQuery,      // of queries: QkNorm in models/model_spec.h
  kKey,        // of keys
  kEmbedding,  // after the embedding, outside layers
};
inline constexpr int kNumNorms = 8;

// Tables of which a step reads single rows. All of them are outside layers.
enum class TableId {
  kTokens,     // the token embedding
  kPositions,  // learned positions
};
inline constexpr int kNumTables = 2;

// The layer id of weights outside layers.
inline constexpr int32_t kOutsideLayers = -1;

enum class SlotKind { kLinear, kNorm, kTable };
enum class SlotField { kWeight, kBias };

// Rows [row_begin, row_begin + rows of the table row) of a slot's weight or bias. Several table rows may share a slot:
// the halves of a gated MLP are two rows of kFc. row_begin counts rows of whole tensors, before they are cut over
// ranks.
struct WeightSlot {
  SlotKind kind = SlotKind::kLinear;
  int id = 0;  // a LinearId, NormId or TableId, as kind says
  SlotField field = SlotField::kWeight;
  int64_t row_begin = 0;

  auto operator<=>(const WeightSlot&) const = default;

  bool isWeight() const { return field == SlotField::kWeight; }
  bool isBias() const { return field == SlotField::kBias; }
  LinearId linear() const {
    assert(kind == SlotKind::kLinear);
    return static_cast<LinearId>(id);
  }
  NormId norm() const {
    assert(kind == SlotKind::kNorm);
    return static_cast<NormId>(id);
  }
  TableId table() const {
    assert(kind == SlotKind::kTable);
    return static_cast<TableId>(id);
  }
  // The weight or bias that these rows belong to, from its first row on: equal for all rows of one tensor.
  WeightSlot whole() const { return {kind, id, field, 0}; }
  // weight() and bias() return the slots of the same rows in the weight and in its bias.
  WeightSlot weight() const { return {kind, id, SlotField::kWeight, row_begin}; }
  WeightSlot bias() const { return {kind, id, SlotField::kBias, row_begin}; }
};

// The weight of a slot.
constexpr WeightSlot slotOf(LinearId id, int64_t row_begin = 0) {
  return {SlotKind::kLinear, static_cast<int>(id), SlotField::kWeight, row_begin};
}
constexpr WeightSlot slotOf(NormId id) { return {SlotKind::kNorm, static_cast<int>(id), SlotField::kWeight, 0}; }
constexpr WeightSlot slotOf(TableId id) { return {SlotKind::kTable, static_cast<int>(id), SlotField::kWeight, 0}; }

}  // namespace chorus
