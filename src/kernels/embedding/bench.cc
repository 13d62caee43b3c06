#include "kernels/kernel_bench.h"

namespace chorus {
namespace {

std::vector<int32_t> spread(int count, int64_t below) {
  std::vector<int32_t> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(int64_t{i} * 7919 % below));
  return values;
}
}  // namespace

std::vector<BenchCase> embeddingBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 2048}, {8, 2048}, {32, 2048}, {512, 2048}}) {
    const int64_t vocab = cols == 100 ? 50 : 32000;
    cases.push_back(
        {.shape = fmt::format("{} rows of {}, vocabulary {}", rows, cols, vocab),
         .dtype = DType::kBFloat16,
         .small = cols == 100,
         .bytes = double{1} * rows * cols * (2 + 4),
         .prepare = [rows = rows, cols = cols, vocab](Backend& backend, size_t) -> BenchCall {
           struct State {
             DeviceBuffer table;
             std::vector<int32_t> tokens;
             bench::BenchMatrix out;
             std::unique_ptr<StepContext> context;
           };
           const auto s = std::make_shared<State>(State{bench::filled(backend, static_cast<size_t>(vocab * cols * 2)),
                                                        spread(rows, vocab),
                                                        {backend, rows, cols},
                                                        backend.createContext()});
           backend.prepare({.tokens = s->tokens}, *s->context);
           return [s, vocab, &backend] {
             backend.embedding({.table = {s->table.data(), DType::kBFloat16, vocab, 0}, .out = s->out.view()},
                               *s->context, {});
           };
         }});
  }
  return cases;
}

std::vector<BenchCase> gatherRowsBench() {
  std::vector<BenchCase> cases;
  for (const auto& [rows, cols] : {std::pair{3, 100}, {1, 2048}, {8, 2048}, {32, 2048}}) {
    cases.push_back({.shape = fmt::format("{} of 512 rows, {} columns", rows, cols),
                     .small = cols == 100,
                     .bytes = double{2} * rows * cols * 4,
                     .prepare = [rows = rows, cols = cols](Backend& backend, size_t) -> BenchCall {
                       struct State {
                         std::vector<int32_t> rows;
                         bench::BenchMatrix x, out;
                         std::unique_ptr<StepContext> context;
                       };
                       const auto s = std::make_shared<State>(State{
                           spread(rows, 512), {backend, 512, cols}, {backend, rows, cols}, backend.createContext()});
                       backend.prepare({.logits_rows = s->rows}, *s->context);
                       return [s, &backend] {
                         backend.gatherRows({.x = s->x.view(), .out = s->out.view()}, *s->context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
