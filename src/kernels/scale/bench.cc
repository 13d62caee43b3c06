#include "kernels/kernel_bench.h"

namespace chorus {

// The logits of a step.
std::vector<BenchCase> scaleBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 32000}, {32, 32000}}) {
    cases.push_back({.shape = fmt::format("{} rows of {}", rows, cols),
                     .small = cols == 100,
                     .bytes = double{1} * rows * cols * 2 * 4,
                     .flops = double{1} * rows * cols,
                     .prepare = [rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         bench::BenchMatrix x;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(State{{backend, rows, cols}, backend.createContext()});
                       // A factor of -1 keeps all values in range, however often the op runs.
                       return [s, &backend] { backend.scale({.x = s->x.view(), .factor = -1.0f}, *s->context, {}); };
                     }});
  }
  return cases;
}

}  // namespace chorus
