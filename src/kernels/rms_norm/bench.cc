#include "kernels/norm_bench.h"

namespace chorus {

std::vector<BenchCase> rmsNormBench() { return bench::normBench(&Backend::rmsNorm, 5); }

}  // namespace chorus
