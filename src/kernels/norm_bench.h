// The benchmark of the ops that add to the residual and normalise it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/kernel_bench.h"

namespace chorus::bench {

// Residual sum and norm of a hidden state. Activations stay in the CPU caches, as between the ops of a layer. norm: the
// op; flops: operations for each element.
template <typename Args>
std::vector<BenchCase> normBench(void (Backend::*norm)(const Args&, StepContext&, Stream), double flops) {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 2048}, {8, 2048}, {32, 2048}, {512, 2048}}) {
    const double elements = double{1} * rows * cols;
    cases.push_back({.shape = fmt::format("{} rows of {}", rows, cols),
                     .small = cols == 100,
                     .bytes = elements * 4 * 4,
                     .flops = elements * flops,
                     .prepare = [norm, rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         BenchMatrix residual, delta, weight, y;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(State{{backend, rows, cols},
                                                                    {backend, rows, cols},
                                                                    {backend, 1, cols},
                                                                    {backend, rows, cols},
                                                                    backend.createContext()});
                       return [s, norm, &backend] {
                         (backend.*norm)({.residual = s->residual.view(),
                                          .delta = s->delta.view(),
                                          .weight = s->weight.view().row(0),
                                          .y = s->y.view()},
                                         *s->context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus::bench
