#include "models/adapter_groups.h"

#include <algorithm>

namespace chorus {

void AdapterGroups::begin(const StepInput& input, int32_t rank) {
  input_ = &input;
  rank_ = rank;
  size_t count = 0;
  for (const AdapterRows& adapter : input.adapters) count += adapter.ranges.size();
  ranges_.reserve(count);  // groups point into ranges_, so it must not grow later
}

void AdapterGroups::clear() {
  ranges_.clear();
  linear_.clear();
  experts_.clear();
  norm_.clear();
  embedding_.clear();
}

std::span<const RowRange> AdapterGroups::rangesIn(const AdapterRows& adapter, RowRange rows) {
  if (isWhole(rows)) return adapter.ranges;
  const size_t first = ranges_.size();
  for (const RowRange& range : adapter.ranges) {
    const RowRange seen{std::max(range.begin, rows.begin) - rows.begin, std::min(range.end, rows.end) - rows.begin};
    if (seen.begin < seen.end) ranges_.push_back(seen);
  }
  return std::span(ranges_).subspan(first);
}

std::span<const RowRange> AdapterGroups::logitsRangesIn(const AdapterRows& adapter, RowRange rows) {
  const std::vector<int32_t>& wanted = input_->logits_rows;
  const auto begin = wanted.begin() + rows.begin, end = wanted.begin() + rows.end;
  const size_t first = ranges_.size();
  for (const RowRange& range : adapter.ranges) {
    const auto from = std::lower_bound(begin, end, range.begin), to = std::lower_bound(from, end, range.end);
    if (from < to) ranges_.push_back({static_cast<int32_t>(from - begin), static_cast<int32_t>(to - begin)});
  }
  return std::span(ranges_).subspan(first);
}

std::span<const EmbeddingGroup> AdapterGroups::embedding() {
  clear();
  for (const AdapterRows& adapter : input_->adapters) {
    const AdapterEmbedding& own = partsOf(adapter).embedding();
    if (own.empty()) continue;
    embedding_.push_back({adapter.ranges, own.table, own.replaced_tokens, own.replaced_rows, own.replaced, own.parts});
  }
  return embedding_;
}

std::span<const RowGroup> AdapterGroups::linear(int32_t layer, LinearId id, RowRange rows) {
  clear();
  for (const AdapterRows& adapter : input_->adapters) {
    const AdapterLinear& own = partsOf(adapter).at(layer, id);
    if (own.empty()) continue;
    const auto ranges = rangesIn(adapter, rows);
    if (!ranges.empty()) linear_.push_back({ranges, own.parts, own.weight});
  }
  return linear_;
}

std::span<const MoeGroup> AdapterGroups::experts(int32_t layer, RowRange rows) {
  clear();
  for (const AdapterRows& adapter : input_->adapters) {
    const AdapterLinear& fc = partsOf(adapter).at(layer, LinearId::kExpertsFc);
    const AdapterLinear& proj = partsOf(adapter).at(layer, LinearId::kExpertsProj);
    if (fc.empty() && proj.empty()) continue;
    const auto ranges = rangesIn(adapter, rows);
    if (!ranges.empty()) experts_.push_back({ranges, fc.experts(), proj.experts()});
  }
  return experts_;
}

void AdapterGroups::appendNorms(int32_t layer, NormId id, std::vector<NormGroup>& groups) const {
  for (const AdapterRows& adapter : input_->adapters) {
    const NormWeights& own = partsOf(adapter).norm(layer, id);
    if (!own.empty()) groups.push_back({adapter.ranges, own.weight, own.bias});
  }
}

std::span<const NormGroup> AdapterGroups::norm(int32_t layer, NormId id) {
  clear();
  appendNorms(layer, id, norm_);
  return norm_;
}

AdapterGroups::HeadNormGroups AdapterGroups::headNorms(int32_t layer) {
  clear();
  key_norm_.clear();
  appendNorms(layer, NormId::kQuery, norm_);
  appendNorms(layer, NormId::kKey, key_norm_);
  return {norm_, key_norm_};
}

std::span<const NormGroup> AdapterGroups::finalNorm() {
  clear();
  for (const AdapterRows& adapter : input_->adapters) {
    const NormWeights& own = partsOf(adapter).norm(kOutsideLayers, NormId::kFinal);
    if (own.empty()) continue;
    const auto ranges = logitsRangesIn(adapter, {0, static_cast<int32_t>(input_->logits_rows.size())});
    if (!ranges.empty()) norm_.push_back({ranges, own.weight, own.bias});
  }
  return norm_;
}

std::span<const RowGroup> AdapterGroups::linearOfLogits(LinearId id, RowRange logits_rows) {
  clear();
  for (const AdapterRows& adapter : input_->adapters) {
    const AdapterLinear& own = partsOf(adapter).at(kOutsideLayers, id);
    if (own.empty()) continue;
    const auto ranges = logitsRangesIn(adapter, logits_rows);
    if (!ranges.empty()) linear_.push_back({ranges, own.parts, own.weight});
  }
  return linear_;
}

int64_t logitsWidth(const StepInput& input, int64_t model_vocabulary) {
  int64_t width = model_vocabulary;
  for (const AdapterRows& adapter : input.adapters) {
    width = std::max(width, adapter.adapter->vocabSize());
  }
  return width;
}

}  // namespace chorus
