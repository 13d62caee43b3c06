#include "kernels/bench_sequences.h"

namespace chorus {

// The time of generation is that of reading the cache; the time of context is that of the products.
std::vector<BenchCase> attentionBench() {
  const auto llama = [](int32_t sequences, int32_t rows, int32_t past) {
    return bench::SequenceShape{32, 4, 64, sequences, rows, past, DType::kBFloat16};
  };
  std::vector<BenchCase> cases;
  for (const bench::SequenceShape& shape :
       {bench::SequenceShape{6, 2, 20, 2, 1, 9, DType::kFloat32},
        bench::SequenceShape{6, 2, 20, 2, 1, 9, DType::kFloat16},
        bench::SequenceShape{6, 2, 20, 2, 1, 9, DType::kBFloat16}, llama(1, 1, 1024), llama(8, 1, 1024),
        llama(32, 1, 1024), llama(8, 1, 2048), llama(8, 1, 8192),
        // Every query head has its own KV head.
        bench::SequenceShape{32, 32, 64, 8, 1, 2048, DType::kBFloat16},
        // A single long sequence with one KV head.
        bench::SequenceShape{8, 1, 128, 1, 1, 32768, DType::kBFloat16}, llama(8, 128, 0), llama(1, 512, 0),
        llama(1, 2048, 0), llama(1, 512, 3584)}) {
    const double keys = static_cast<double>(shape.allRows()) * (shape.past + (shape.rows + 1) / 2.0);
    const int64_t width = int64_t{shape.num_heads} * shape.head_size;
    cases.push_back({.shape = fmt::format("{} sequences x {} rows after {}, heads {}/{} of size {}", shape.sequences,
                                          shape.rows, shape.past, shape.num_heads, shape.num_kv_heads, shape.head_size),
                     .dtype = shape.dtype,
                     .small = shape.past < 10 && shape.rows < 10,
                     .bytes = double{1} * shape.sequences * (shape.past + shape.rows) * shape.tokenBytes(),
                     .flops = 4 * keys * static_cast<double>(width),
                     .prepare = [=](Backend& backend, size_t cold_bytes) -> BenchCall {
                       struct State {
                         bench::Sequences sequences;
                         bench::BenchMatrix q, out;
                       };
                       const auto s = std::make_shared<State>(State{bench::Sequences(backend, shape, cold_bytes),
                                                                    {backend, shape.allRows(), width},
                                                                    {backend, shape.allRows(), width}});
                       return [s, heads = shape.num_heads, &backend] {
                         backend.attention({.q = s->q.view(),
                                            .num_heads = heads,
                                            .score = {.scale = 0.125f},
                                            .kv = s->sequences.next(),
                                            .out = s->out.view()},
                                           *s->sequences.context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
