// The adapters of a step as the groups of rows that each op takes.
#pragma once

#include <vector>

#include "models/step_input.h"

namespace chorus {

// One rank's, for one step at a time; what it returns is valid until the next call. Keeps its room from step to step.
// An adapter without anything for an op leaves no group behind.
class AdapterGroups {
 public:
  // input must stay as it is until the next begin. rank: which AdapterParts are its own.
  void begin(const StepInput& input, int32_t rank);
  bool empty() const { return input_->adapters.empty(); }

  std::span<const EmbeddingGroup> embedding();
  // rows: of the step; those of the op begin with the first of them.
  std::span<const RowGroup> linear(int32_t layer, LinearId id, RowRange rows);
  std::span<const NormGroup> norm(int32_t layer, NormId id);
  // Of the rows that need logits; the head: of some of them.
  std::span<const NormGroup> finalNorm();
  std::span<const RowGroup> head(RowRange logits_rows);

 private:
  const AdapterParts& partsOf(const AdapterRows& adapter) const {
    return *adapter.adapter->ranks[static_cast<size_t>(rank_)];
  }
  bool isWhole(RowRange rows) const {
    return rows.begin == 0 && rows.end == static_cast<int32_t>(input_->tokens.size());
  }
  void clear();
  // The adapter's rows among these, counted from the first of them.
  std::span<const RowRange> rangesIn(const AdapterRows& adapter, RowRange rows);
  // The same among rows of logits.
  std::span<const RowRange> logitsRangesIn(const AdapterRows& adapter, RowRange rows);

  const StepInput* input_ = nullptr;
  int32_t rank_ = 0;
  std::vector<RowRange> ranges_;
  std::vector<RowGroup> linear_;
  std::vector<NormGroup> norm_;
  std::vector<EmbeddingGroup> embedding_;
};

// Columns of a step's logits: tokens of the widest vocabulary among its adapters'. A row's own are the first ones, as
// many as its adapter's vocabSize() says; the rest of it is undefined.
int64_t logitsWidth(const StepInput& input, int64_t model_vocabulary);

}  // namespace chorus
