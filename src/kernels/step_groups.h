// The groups of rows of one step, for all its ops.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/embedding/embedding_group.h"
#include "kernels/linear/row_group.h"
#include "kernels/moe/moe_group.h"
#include "kernels/norm_groups.h"

namespace chorus {

// Groups [begin, end) of a step's groups of one kind. An op takes this handle, because a backend may keep the groups
// themselves in device memory.
template <typename Group>
struct GroupList {
  int32_t begin = 0;
  int32_t end = 0;
};

struct StepGroups {
  std::span<const EmbeddingGroup> embedding;
  std::span<const RowGroup> linear;
  std::span<const MoeGroup> moe;
  std::span<const NormGroup> norm;

  std::span<const EmbeddingGroup> operator[](GroupList<EmbeddingGroup> list) const { return some(embedding, list); }
  std::span<const RowGroup> operator[](GroupList<RowGroup> list) const { return some(linear, list); }
  std::span<const MoeGroup> operator[](GroupList<MoeGroup> list) const { return some(moe, list); }
  std::span<const NormGroup> operator[](GroupList<NormGroup> list) const { return some(norm, list); }

 private:
  template <typename Group>
  static std::span<const Group> some(std::span<const Group> all, GroupList<Group> list) {
    return all.subspan(static_cast<size_t>(list.begin), static_cast<size_t>(list.end - list.begin));
  }
};

}  // namespace chorus
