#include "kernels/bench_sequences.h"

namespace chorus {

std::vector<BenchCase> kvWriteBench() {
  const auto llama = [](int32_t sequences, int32_t rows) {
    return bench::SequenceShape{32, 4, 64, sequences, rows, 100, DType::kBFloat16};
  };
  std::vector<BenchCase> cases;
  for (const bench::SequenceShape& shape : {bench::SequenceShape{6, 2, 20, 2, 1, 9, DType::kBFloat16}, llama(1, 1),
                                            llama(8, 1), llama(32, 1), llama(1, 512)}) {
    const double rows = static_cast<double>(shape.allRows());
    cases.push_back({.shape = fmt::format("{} sequences x {} rows, heads {}/{} of size {}", shape.sequences, shape.rows,
                                          shape.num_heads, shape.num_kv_heads, shape.head_size),
                     .dtype = shape.dtype,
                     .small = shape.past < 10,
                     .bytes = rows * (static_cast<double>(shape.qkvWidth()) * 8 + shape.tokenBytes()),
                     .flops = rows * 3 * static_cast<double>(shape.qkvWidth()),
                     .prepare = [=](Backend& backend, size_t cold_bytes) -> BenchCall {
                       struct State {
                         bench::Sequences sequences;
                         bench::BenchMatrix qkv;
                         DeviceBuffer cos, sin;
                       };
                       // All angles are zero, because the rows are rotated in place in every call and must keep their
                       // size.
                       const auto positions = static_cast<size_t>(shape.past + shape.rows);
                       const std::vector<float> ones(positions * static_cast<size_t>(shape.head_size) / 2, 1.0f);
                       const auto s = std::make_shared<State>(State{bench::Sequences(backend, shape, cold_bytes),
                                                                    {backend, shape.allRows(), shape.qkvWidth()},
                                                                    backend.allocate(ones.size() * sizeof(float)),
                                                                    backend.allocate(ones.size() * sizeof(float))});
                       backend.upload(s->cos.data(), ones.data(), s->cos.size(), {});
                       backend.synchronize({});
                       return [s, shape, &backend] {
                         backend.kvWrite({.qkv = s->qkv.view(),
                                          .num_heads = shape.num_heads,
                                          .rope = {s->cos.as<float>(), s->sin.as<float>(), shape.head_size},
                                          .kv = s->sequences.next()},
                                         *s->sequences.context, {});
                       };
                     }});
  }
  return cases;
}

}  // namespace chorus
