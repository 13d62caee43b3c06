#include "kernels/kernel_bench.h"

namespace chorus {

// The queries of a step. They stay in the CPU caches, as between the ops of a layer.
std::vector<BenchCase> rowSquaresBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 2048}, {32, 2048}, {512, 2048}}) {
    const double elements = double{1} * rows * cols;
    cases.push_back({.shape = fmt::format("{} rows of {}", rows, cols),
                     .small = cols == 100,
                     .bytes = elements * 4,
                     .flops = elements * 2,
                     .prepare = [rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         bench::BenchMatrix x, squares;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(
                           State{{backend, rows, cols}, {backend, 1, rows}, backend.createContext()});
                       return [s, &backend] {
                         backend.rowSquares({.x = s->x.view(), .squares = s->squares.view().row(0)}, *s->context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
