// Every op with its variants and benchmark rows. Tests, `chorus bench kernels` and `chorus inspect --kernels`
// enumerate what is here, so that an op or a variant is in all of them or the build or a test fails:
//   - an op of op_list.h without NAMEVariants() or NAMEBench() does not link, without a function in a backend does not
//     compile;
//   - registry_test.cc fails when a variant of this machine has no instance of the op's tests or no benchmark row;
//   - tests/golden_logits_test.cc fails when a variant that some instruction set uses by default ran in no golden.
#pragma once

#include <optional>
#include <vector>

#include "kernels/kernel_bench.h"
#include "kernels/variant.h"

namespace chorus {

// The reference first, then the CPU's, least set first within a format. Those of sets that this machine lacks
// are among them.
std::vector<Variant> variantsOf(Op op);
std::vector<BenchCase> benchCasesOf(Op op);

bool isAvailable(const Variant& variant);

// What runs the op where `isa` is chosen (none: on the reference backend) and the weights are of `weights`:
// of the variants that read this format the last whose set isa includes. int8 and int4 as 16-bit models have them:
// those of float32 models keep their inputs (linearIsa).
Variant defaultVariant(Op op, std::optional<Isa> isa, DType weights);

}  // namespace chorus
