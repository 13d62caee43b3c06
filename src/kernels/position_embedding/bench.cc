#include "kernels/kernel_bench.h"

namespace chorus {

// Rows of one sequence, from position 0 on.
std::vector<BenchCase> positionEmbeddingBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 2048}, {32, 2048}, {512, 2048}}) {
    cases.push_back({.shape = fmt::format("{} rows of {}", rows, cols),
                     .small = cols == 100,
                     .bytes = double{1} * rows * cols * (2 + 2 * 4),
                     .prepare = [rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         bench::BenchMatrix x;
                         DeviceBuffer table;
                         std::vector<int32_t> tokens;
                         std::vector<SequenceSpan> sequences;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(
                           State{{backend, rows, cols},
                                 bench::filled(backend, static_cast<size_t>(rows * cols) * sizeof(bf16)),
                                 std::vector<int32_t>(static_cast<size_t>(rows)),
                                 {{.row_begin = 0, .num_rows = rows, .first_position = 0, .block_tables = {}}},
                                 backend.createContext()});
                       backend.prepare({s->tokens, s->sequences, {}}, *s->context);
                       return [s, rows, &backend] {
                         backend.positionEmbedding(
                             {.table = {s->table.data(), DType::kBFloat16, rows, 0}, .x = s->x.view()}, *s->context,
                             {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
