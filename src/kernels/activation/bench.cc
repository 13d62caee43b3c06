#include "kernels/kernel_bench.h"

namespace chorus {

std::vector<BenchCase> activationBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 8192}, {8, 8192}, {32, 8192}, {512, 8192}}) {
    const double elements = double{1} * rows * cols;
    cases.push_back({.shape = fmt::format("tanh gelu, {} rows of {}", rows, cols),
                     .small = cols == 100,
                     .bytes = elements * 2 * 4,
                     .flops = elements * 25,  // an exponential, a division, a cubic
                     .prepare = [rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         bench::BenchMatrix x;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(State{{backend, rows, cols}, backend.createContext()});
                       return [s, &backend] {
                         backend.activation({.x = s->x.view(), .kind = ActivationKind::kGeluTanh}, *s->context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
