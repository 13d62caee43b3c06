// The kernels of an op by instruction set. The op selects its kernel from the same list from which the registry takes
// the variants.
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
// Ordered from the smallest instruction set to the largest. Never empty; the first entry runs on every machine.
template <typename Kernel>
using IsaTable = std::span<const IsaKernel<Kernel>>;

// Returns make(), or an empty Kernel if the machine lacks the instruction set: `make` may itself be compiled for that
// set.
template <typename Kernel>
Kernel kernelIfAvailable(Isa isa, Kernel (*make)()) {
  const std::vector<Isa>& available = availableIsas();
  return std::find(available.begin(), available.end(), isa) != available.end() ? make() : Kernel{};
}

// The last entry whose instruction set `isa` includes.
template <typename Kernel>
const IsaKernel<Kernel>& selectKernel(IsaTable<Kernel> table, Isa isa) {
  const IsaKernel<Kernel>* best = &table.front();
  for (const IsaKernel<Kernel>& entry : table) {
    if (includes(isa, entry.isa)) best = &entry;
  }
  return *best;
}

// The variants of the table, for the registry.
template <typename Kernel>
std::vector<Variant> variantsOf(Op op, IsaTable<Kernel> table, std::optional<DType> dtype = std::nullopt) {
  std::vector<Variant> variants;
  for (const IsaKernel<Kernel>& entry : table) variants.push_back({op, entry.isa, dtype});
  return variants;
}

}  // namespace chorus
