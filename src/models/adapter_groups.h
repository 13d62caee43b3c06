// Turns the adapters of a step into the groups of rows that the ops take.
#pragma once

#include <array>
#include <vector>

#include "models/adapter_table.h"
#include "models/step_input.h"

namespace chorus {

// The groups of all ops of one step, on one rank. Memory is kept from step to step. An adapter that has nothing for an
// op has no group in it.
class AdapterGroups {
 public:
  // layers: number of layers of this rank's pipeline stage.
  explicit AdapterGroups(int32_t layers) : layers_(static_cast<size_t>(layers) + 1) {}

  // Makes the groups of a step, for Backend::prepare. table: has the step's adapters. The groups point into `input` and
  // are valid until the next call, as are the handles that the functions below return. Throws Error(kInternal) if the
  // table lacks an adapter.
  StepGroups begin(const StepInput& input, const AdapterTable& table);

  GroupList<EmbeddingGroup> embedding() const { return embedding_list_; }
  // layer: local id, or kOutsideLayers. The ranges of kProjectOut, kHead and NormId::kFinal are indices into
  // StepInput::logits_rows; those of all others are rows of the step.
  GroupList<RowGroup> linear(int32_t layer, LinearId id) const { return at(layer).linears[static_cast<size_t>(id)]; }
  GroupList<NormGroup> norm(int32_t layer, NormId id) const { return at(layer).norms[static_cast<size_t>(id)]; }
  GroupList<MoeGroup> experts(int32_t layer) const { return at(layer).experts; }

 private:
  struct LayerLists {
    std::array<GroupList<RowGroup>, kNumLinears> linears;
    std::array<GroupList<NormGroup>, kNumNorms> norms;
    GroupList<MoeGroup> experts;
  };
  struct StepAdapter {
    const AdapterParts* parts;
    std::span<const RowRange> rows;
    std::span<const RowRange> logits;  // indices into StepInput::logits_rows
  };
  const LayerLists& at(int32_t layer) const { return layers_[static_cast<size_t>(layer - kOutsideLayers)]; }
  void findRows(const StepInput& input, const AdapterTable& table);
  void addLayer(int32_t layer);
  void addEmbedding();

  std::vector<LayerLists> layers_;  // outside layers, then every layer
  GroupList<EmbeddingGroup> embedding_list_;
  std::vector<StepAdapter> adapters_;
  std::vector<RowRange> logits_ranges_;
  std::vector<EmbeddingGroup> embedding_;
  std::vector<RowGroup> linear_;
  std::vector<MoeGroup> moe_;
  std::vector<NormGroup> norm_;
};

}  // namespace chorus
