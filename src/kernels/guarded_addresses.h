// Translates the device addresses in an op's arguments and in a step's groups to host addresses. A new pointer to
// device memory in one of these structs must be added here; otherwise the first op that reads it faults.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/guarded_arena.h"

namespace chorus {

// Each translate() replaces the device addresses of its argument itself. The terms that a group has spans of are in
// host memory; GuardedGroups translates them.
class GuardedAddresses {
 public:
  explicit GuardedAddresses(const GuardedArena& arena) : arena_(arena) {}

#define CHORUS_OP(Name, function, name) void translate(Name##Args& args) const;
  CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
  void translate(KvLayer& kv) const { each(kv.base); }
  void translate(EmbeddingPart& part) const { each(part.a, part.b, part.magnitude); }
  void translate(EmbeddingGroup& group) const { each(group.table, group.replaced_tokens, group.replaced_rows); }
  void translate(LoraTerm& term) const { each(term.a, term.b, term.bias, term.magnitude); }
  void translate(RowGroup& group) const { each(group.weight); }
  void translate(NormGroup& group) const { each(group.weight, group.bias); }

 private:
  template <typename T>
  void translate(T*& device) const {
    device = arena_.toHost(device);
  }
  void translate(Matrix& matrix) const { each(matrix.data); }
  void translate(ConstMatrix& matrix) const { each(matrix.data); }
  void translate(PackedWeight& weight) const { each(weight.data); }
  void translate(EmbeddingTable& table) const { each(table.data); }
  template <typename... Parts>
  void each(Parts&... parts) const {
    (translate(parts), ...);
  }

  const GuardedArena& arena_;
};

// Copies of a step's groups with host addresses.
class GuardedGroups {
 public:
  GuardedGroups() = default;
  GuardedGroups(const StepGroups& groups, const GuardedAddresses& addresses);
  // Spans of a copy would point into the original, so an object can only be moved.
  GuardedGroups(GuardedGroups&&) = default;
  GuardedGroups& operator=(GuardedGroups&&) = default;
  // Valid while this object lives and is not assigned to.
  StepGroups groups() const { return {.embedding = embedding_, .linear = linear_, .moe = moe_, .norm = norm_}; }

 private:
  // Returns a translated copy that this object keeps.
  template <typename T>
  std::span<const T> keep(std::span<const T> terms, std::vector<std::vector<T>>& kept,
                          const GuardedAddresses& addresses);

  std::vector<EmbeddingGroup> embedding_;
  std::vector<RowGroup> linear_;
  std::vector<MoeGroup> moe_;
  std::vector<NormGroup> norm_;
  std::vector<std::vector<EmbeddingPart>> embedding_parts_;
  std::vector<std::vector<LoraTerm>> lora_terms_;
};

}  // namespace chorus
