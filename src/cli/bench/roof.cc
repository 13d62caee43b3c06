#include "cli/bench/roof.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/thread_pool.h"
#include "checkpoint/quantisation.h"
#include "kernels/default_isa.h"
#include "kernels/linear/linear.h"
#include "kernels/roofline.h"

namespace chorus {

Roof measureRoof(int threads, int read_mib, Isa isa) {
  ThreadPool pool(threads > 0 ? threads : availableCores());
  return {measureReadBandwidth(pool, static_cast<size_t>(read_mib) << 20), measureMatmulPeak(pool, isa),
          measureForkJoin(pool)};
}

void keepBetter(Roof& best, const Roof& roof) {
  best.read_bytes_per_s = std::max(best.read_bytes_per_s, roof.read_bytes_per_s);
  best.matmul_flops = std::max(best.matmul_flops, roof.matmul_flops);
  best.fork_join_s = std::min(best.fork_join_s, roof.fork_join_s);
}

void printMoved(const Roof& before, const Roof& after) {
  const auto moved = [](double first, double second) {
    return std::abs(first - second) >= 0.1 * std::max(first, second);
  };
  if (moved(before.read_bytes_per_s, after.read_bytes_per_s)) {
    std::printf("the read roof moved from %.1f to %.1f GB/s: other work on the machine?\n",
                before.read_bytes_per_s / 1e9, after.read_bytes_per_s / 1e9);
  }
  if (moved(before.matmul_flops, after.matmul_flops)) {
    std::printf("the roof of products moved from %.3f to %.3f TFLOP/s: a processor that is slowed down?\n",
                before.matmul_flops / 1e12, after.matmul_flops / 1e12);
  }
}

void printRoof(const Roof& roof) {
  std::printf("roof: read %.1f GB/s, products %.3f TFLOP/s; a fork-join %.2f us\n", roof.read_bytes_per_s / 1e9,
              roof.matmul_flops / 1e12, roof.fork_join_s * 1e6);
}

Json readRates(const Roof& before, const Roof& after) {
  return {before.read_bytes_per_s / 1e9, after.read_bytes_per_s / 1e9};
}
Json productRates(const Roof& before, const Roof& after) {
  return {before.matmul_flops / 1e12, after.matmul_flops / 1e12};
}

Isa productIsa(const std::string& isa, const Engine& engine) {
  const auto quantised = weightQuantisation(engine.config());
  return linearIsa(isa.empty() ? defaultIsa() : requireIsa(isa),
                   quantised ? quantised->format : WeightFormat(engine.config().dtype));
}

}  // namespace chorus
