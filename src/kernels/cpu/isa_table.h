// An op's kernels by instruction set: the one list from which both the op takes its kernel and the registry
// learns which there are.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/variant.h"

namespace chorus {

// The kernel of one instruction set.
template <typename Kernel>
struct IsaKernel {
  Isa isa;
  Kernel kernel;
};
// Least set first, never empty: the first runs on every machine.
template <typename Kernel>
using IsaTable = std::span<const IsaKernel<Kernel>>;

// What `make` returns; nothing where the machine lacks the set, which `make` may have been compiled for as well.
template <typename Kernel>
Kernel kernelIfAvailable(Isa isa, Kernel (*make)()) {
  const std::vector<Isa>& available = availableIsas();
  return std::find(available.begin(), available.end(), isa) != available.end() ? make() : Kernel{};
}

// The last entry whose set `isa` includes.
template <typename Kernel>
const IsaKernel<Kernel>& selectKernel(IsaTable<Kernel> table, Isa isa) {
  const IsaKernel<Kernel>* best = &table.front();
  for (const IsaKernel<Kernel>& entry : table) {
    if (includes(isa, entry.isa)) best = &entry;
  }
  return *best;
}

// The table as the registry has it.
template <typename Kernel>
std::vector<Variant> variantsOf(Op op, IsaTable<Kernel> table, std::optional<DType> dtype = std::nullopt) {
  std::vector<Variant> variants;
  for (const IsaKernel<Kernel>& entry : table) variants.push_back({op, entry.isa, dtype});
  return variants;
}

}  // namespace chorus
