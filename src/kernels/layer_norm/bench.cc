#include "kernels/norm_bench.h"

namespace chorus {

std::vector<BenchCase> layerNormBench() { return bench::normBench(&Backend::layerNorm, 8); }

}  // namespace chorus
