#include "kernels/kernel_bench.h"

namespace chorus {

std::vector<BenchCase> gatedActivationBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 5632}, {8, 5632}, {32, 5632}, {512, 5632}}) {
    const double elements = double{1} * rows * cols;
    cases.push_back({.shape = fmt::format("silu, {} rows of {}", rows, cols),
                     .small = cols == 100,
                     .bytes = elements * 3 * 4,
                     .flops = elements * 20,  // an exponential, a division, two products
                     .prepare = [rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         bench::BenchMatrix fc_gate, out;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(
                           State{{backend, rows, 2 * cols}, {backend, rows, cols}, backend.createContext()});
                       return [s, &backend] {
                         backend.gatedActivation({.fc_gate = s->fc_gate.view(), .out = s->out.view()}, *s->context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
