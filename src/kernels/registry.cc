#include "kernels/registry.h"

#include <cassert>

namespace chorus {

// Defined in each op's folder: cpu.cc and bench.cc.
#define CHORUS_OP(Name, function, name)    \
  std::vector<Variant> function##Variants(); \
  std::vector<BenchCase> function##Bench();
CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP

std::vector<Variant> variantsOf(Op op) {
  std::vector<Variant> variants;
  switch (op) {
#define CHORUS_OP(Name, function, name) \
  case Op::k##Name:                     \
    variants = function##Variants();    \
    break;
    CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
  }
  variants.insert(variants.begin(), {op, std::nullopt, std::nullopt});
  return variants;
}

std::vector<BenchCase> benchCasesOf(Op op) {
  switch (op) {
#define CHORUS_OP(Name, function, name) \
  case Op::k##Name:                     \
    return function##Bench();
    CHORUS_OPS(CHORUS_OP)
#undef CHORUS_OP
  }
  return {};
}

bool isAvailable(const Variant& variant) {
  const auto& isas = availableIsas();
  return !variant.isa || std::find(isas.begin(), isas.end(), *variant.isa) != isas.end();
}

Variant defaultVariant(Op op, std::optional<Isa> isa, DType weights) {
  std::optional<Variant> best;
  for (const Variant& variant : variantsOf(op)) {
    if (variant.dtype && *variant.dtype != weights) continue;
    if (isa ? variant.isa && includes(*isa, *variant.isa) : !variant.isa) best = variant;
  }
  assert(best);
  return *best;
}

}  // namespace chorus
