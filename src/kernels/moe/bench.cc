#include "kernels/kernel_bench.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

constexpr DType kWeights = DType::kBFloat16;

struct Shape {
  int64_t rows, hidden, intermediate, experts, top_k;
  bool small = false;
};

// Each row has top_k consecutive experts, beginning further on from row to row, so that all experts have equally many
// rows.
std::vector<float> spreadLogits(const Shape& shape) {
  std::vector<float> logits(static_cast<size_t>(shape.rows * shape.experts));
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t i = 0; i < shape.top_k; ++i) {
      logits[static_cast<size_t>(r * shape.experts + (r * shape.top_k + i) % shape.experts)] = 1.0f;
    }
  }
  return logits;
}

BenchCase benchCase(const Shape& s) {
  const int64_t used = std::min(s.experts, s.rows * s.top_k), fc = 2 * s.intermediate;
  const auto pairs = static_cast<double>(s.rows * s.top_k);
  const int64_t expert_bytes = packedBytes(kWeights, fc, s.hidden) + packedBytes(kWeights, s.hidden, s.intermediate);
  return {.shape = fmt::format("{} rows of {}, {} of {} experts of {}", s.rows, s.hidden, s.top_k, s.experts,
                               s.intermediate),
          .small = s.small,
          .bytes = static_cast<double>(used * expert_bytes),
          .flops = 6.0 * pairs * static_cast<double>(s.hidden * s.intermediate),
          .prepare = [s, fc](Backend& backend, size_t cold_bytes) -> BenchCall {
            struct State {
              // All experts of a linear are one weight of experts times as many outputs, which is as long because the
              // outputs are a multiple of a panel.
              bench::ColdWeights fc, proj;
              bench::BenchMatrix x, logits, out;
              DeviceBuffer workspace;
              std::unique_ptr<StepContext> context;
            };
            const auto state = std::make_shared<State>(
                State{bench::ColdWeights(backend, kWeights, s.experts * fc, s.hidden, cold_bytes / 2),
                      bench::ColdWeights(backend, kWeights, s.experts * s.hidden, s.intermediate, cold_bytes / 2),
                      {backend, s.rows, s.hidden},
                      {backend, s.rows, s.experts},
                      {backend, s.rows, s.hidden},
                      backend.allocate(
                          static_cast<size_t>(moeWorkspace(s.rows, static_cast<int32_t>(s.top_k), s.hidden, fc)) * 4),
                      backend.createContext()});
            const std::vector<float> logits = spreadLogits(s);
            backend.upload(state->logits.buffer.data(), logits.data(), logits.size() * sizeof(float), {});
            return [state, s, fc, &backend] {
              backend.moe({.x = state->x.view(),
                           .logits = state->logits.view(),
                           .routing = {.top_k = static_cast<int32_t>(s.top_k)},
                           .fc = {state->fc.next().data, kWeights, fc, s.hidden},
                           .proj = {state->proj.next().data, kWeights, s.hidden, s.intermediate},
                           .workspace = state->workspace.as<float>(),
                           .out = state->out.view()},
                          *state->context, {});
            };
          }};
}
}  // namespace

std::vector<BenchCase> moeBench() {
  std::vector<BenchCase> cases = {benchCase({3, 48, 32, 4, 2, true})};
  for (const int64_t rows : {1, 8, 32, 512}) cases.push_back(benchCase({rows, 2048, 768, 32, 8}));
  return cases;
}

}  // namespace chorus
