#include "models/adapter_groups.h"

#include <algorithm>

namespace chorus {
namespace {

// Appends one group for each adapter for which `make` has one, and returns the handle of these groups.
template <typename Group, typename Adapters, typename Make>
GroupList<Group> append(std::vector<Group>& groups, const Adapters& adapters, Make make) {
  const auto count = [&] { return static_cast<int32_t>(groups.size()); };
  GroupList<Group> list{count(), count()};
  for (const auto& adapter : adapters) make(adapter);
  list.end = count();
  return list;
}

bool isOfLogits(LinearId id) { return id == LinearId::kProjectOut || id == LinearId::kHead; }
bool isOfExperts(LinearId id) { return id == LinearId::kExpertsFc || id == LinearId::kExpertsProj; }
}  // namespace

StepGroups AdapterGroups::begin(const StepInput& input, const AdapterTable& table) {
  embedding_.clear();
  linear_.clear();
  moe_.clear();
  norm_.clear();
  findRows(input, table);
  addEmbedding();
  for (int32_t layer = kOutsideLayers; layer - kOutsideLayers < static_cast<int32_t>(layers_.size()); ++layer) {
    addLayer(layer);
  }
  return {.embedding = embedding_, .linear = linear_, .moe = moe_, .norm = norm_};
}

void AdapterGroups::findRows(const StepInput& input, const AdapterTable& table) {
  adapters_.clear();
  logits_ranges_.clear();
  size_t count = 0;
  for (const AdapterRows& adapter : input.adapters) count += adapter.ranges.size();
  logits_ranges_.reserve(count);  // adapters_ has spans of it, so it must not grow later
  const auto begin = input.logits_rows.begin(), end = input.logits_rows.end();
  for (const AdapterRows& adapter : input.adapters) {
    const size_t first = logits_ranges_.size();
    for (const RowRange& range : adapter.ranges) {
      const auto from = std::lower_bound(begin, end, range.begin), to = std::lower_bound(from, end, range.end);
      if (from < to) logits_ranges_.push_back({static_cast<int32_t>(from - begin), static_cast<int32_t>(to - begin)});
    }
    adapters_.push_back({table.at(adapter.adapter).get(), adapter.ranges, std::span(logits_ranges_).subspan(first)});
  }
}

void AdapterGroups::addEmbedding() {
  embedding_list_ = append(embedding_, adapters_, [&](const StepAdapter& adapter) {
    const AdapterEmbedding& own = adapter.parts->embedding();
    if (own.empty()) return;
    embedding_.push_back({adapter.rows, own.table, own.replaced_tokens, own.replaced_rows, own.replaced, own.parts});
  });
}

void AdapterGroups::addLayer(int32_t layer) {
  LayerLists& lists = layers_[static_cast<size_t>(layer - kOutsideLayers)];
  for (int i = 0; i < kNumLinears; ++i) {
    const auto id = static_cast<LinearId>(i);
    if (isOfExperts(id)) continue;
    lists.linears[static_cast<size_t>(i)] = append(linear_, adapters_, [&](const StepAdapter& adapter) {
      const AdapterLinear& own = adapter.parts->at(layer, id);
      const auto rows = isOfLogits(id) ? adapter.logits : adapter.rows;
      if (!own.empty() && !rows.empty()) linear_.push_back({rows, own.parts, own.weight});
    });
  }
  for (int i = 0; i < kNumNorms; ++i) {
    const auto id = static_cast<NormId>(i);
    lists.norms[static_cast<size_t>(i)] = append(norm_, adapters_, [&](const StepAdapter& adapter) {
      const NormWeights& own = adapter.parts->norm(layer, id);
      const auto rows = id == NormId::kFinal ? adapter.logits : adapter.rows;
      if (!own.empty() && !rows.empty()) norm_.push_back({rows, own.weight, own.bias});
    });
  }
  lists.experts = append(moe_, adapters_, [&](const StepAdapter& adapter) {
    const AdapterLinear& fc = adapter.parts->at(layer, LinearId::kExpertsFc);
    const AdapterLinear& proj = adapter.parts->at(layer, LinearId::kExpertsProj);
    if (!fc.empty() || !proj.empty()) moe_.push_back({adapter.rows, fc.experts(), proj.experts()});
  });
}

}  // namespace chorus
