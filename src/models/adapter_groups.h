// Turns the adapters of a step into the groups of rows that the ops take.
#pragma once

#include <vector>

#include "models/step_input.h"

namespace chorus {

// Makes the groups of one rank, for one step at a time. The groups that a function returns are valid until the next
// call. Memory is kept from step to step. An adapter that has nothing for an op has no group in it.
class AdapterGroups {
 public:
  // Starts a step. input must not change until the next begin(). rank: index into PreparedAdapter::ranks.
  void begin(const StepInput& input, int32_t rank);
  bool empty() const { return input_->adapters.empty(); }

  std::span<const EmbeddingGroup> embedding();
  // rows: the rows of the step that the op processes. Ranges of the groups are relative to rows.begin.
  std::span<const RowGroup> linear(int32_t layer, LinearId id, RowRange rows);
  // Groups of the experts' linears. rows: as for linear().
  std::span<const MoeGroup> experts(int32_t layer, RowRange rows);
  std::span<const NormGroup> norm(int32_t layer, NormId id);
  // The norms of query and key heads; the two results are valid together.
  struct HeadNormGroups {
    std::span<const NormGroup> query, key;
  };
  HeadNormGroups headNorms(int32_t layer);
  // Groups of the rows that need logits. Their ranges are indices into StepInput::logits_rows. linearOfLogits() takes a
  // linear outside layers and a range of these indices; ranges of its groups are relative to logits_rows.begin.
  std::span<const NormGroup> finalNorm();
  std::span<const RowGroup> linearOfLogits(LinearId id, RowRange logits_rows);

 private:
  const AdapterParts& partsOf(const AdapterRows& adapter) const {
    return *adapter.adapter->ranks[static_cast<size_t>(rank_)];
  }
  bool isWhole(RowRange rows) const {
    return rows.begin == 0 && rows.end == static_cast<int32_t>(input_->tokens.size());
  }
  void clear();
  void appendNorms(int32_t layer, NormId id, std::vector<NormGroup>& groups) const;
  // The adapter's ranges within `rows`, relative to rows.begin.
  std::span<const RowRange> rangesIn(const AdapterRows& adapter, RowRange rows);
  // Like rangesIn(), but `rows` is a range of indices into StepInput::logits_rows.
  std::span<const RowRange> logitsRangesIn(const AdapterRows& adapter, RowRange rows);

  const StepInput* input_ = nullptr;
  int32_t rank_ = 0;
  std::vector<RowRange> ranges_;
  std::vector<RowGroup> linear_;
  std::vector<MoeGroup> experts_;
  std::vector<NormGroup> norm_, key_norm_;
  std::vector<EmbeddingGroup> embedding_;
};

// Number of columns of a step's logits: the size of the largest vocabulary among the model's and those of the step's
// adapters. In a row with an adapter whose vocabulary has n tokens, the first n columns are the logits and the other
// columns are undefined.
int64_t logitsWidth(const StepInput& input, int64_t model_vocabulary);

}  // namespace chorus
