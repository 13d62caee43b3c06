// All ops with their variants and benchmark cases. Tests, `chorus bench kernels` and `chorus inspect --kernels` iterate
// over them, so that an op or a variant is in all of them, or else the build or a test fails:
//   - An op of op_list.h without NAMEVariants() or NAMEBench() does not link; one without a function in a backend does
//     not compile.
//   - registry_test.cc fails if a variant of this machine has no instance of the op's tests or no benchmark case.
//   - tests/golden_logits_test.cc fails if a variant that some instruction set uses by default runs in no golden test.
#pragma once

#include <optional>
#include <vector>

#include "kernels/kernel_bench.h"
#include "kernels/variant.h"

namespace chorus {

// The reference comes first, then the CPU variants; variants of one format are ordered from the smallest instruction
// set to the largest. The list includes variants of instruction sets that this machine lacks.
std::vector<Variant> variantsOf(Op op);
std::vector<BenchCase> benchCasesOf(Op op);

bool isAvailable(const Variant& variant);

// The variant that runs the op if the backend uses `isa` (none: the reference backend) and the type of the weights is
// `weights`: among the variants that read this type, the last one whose instruction set `isa` includes. int8 and int4
// weights are assumed to belong to a 16-bit model; float32 models keep float32 inputs and may use another variant (see
// linearIsa).
Variant defaultVariant(Op op, std::optional<Isa> isa, DType weights);

}  // namespace chorus
