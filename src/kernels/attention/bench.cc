// Attention against its roofs: bytes of cache read a second in generation, operations a second in context.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "kernels/bench_util.h"

namespace chorus {
namespace {

// `rows` new tokens behind `past` cached ones in each of `sequences`, 32 heads over 8 KV heads of 64, bf16
// cache.
void attentionBench(benchmark::State& state) {
  const auto sequences = static_cast<int32_t>(state.range(0));
  const auto rows = static_cast<int32_t>(state.range(1));
  const auto past = static_cast<int32_t>(state.range(2));
  constexpr int32_t kHeads = 32;
  KvLayer kv{nullptr, 0, DType::kBFloat16, 8, 64, 64};
  kv.block_stride = kvBlockBytes(kv);
  const int32_t blocks = (past + rows + kv.tokens_per_block - 1) / kv.tokens_per_block;
  const AlignedBuffer memory(static_cast<size_t>(kv.block_stride) * static_cast<size_t>(blocks * sequences));
  kv.base = memory.data();
  std::vector<int32_t> tables(static_cast<size_t>(blocks * sequences));
  std::iota(tables.begin(), tables.end(), 0);
  std::vector<SequenceSpan> spans;
  for (int32_t s = 0; s < sequences; ++s) {
    spans.push_back(
        {s * rows, rows, past,
         std::span(tables).subspan(static_cast<size_t>(s * blocks), static_cast<size_t>(blocks))});
  }
  const int64_t all_rows = int64_t{sequences} * rows, width = int64_t{kHeads} * kv.head_size;
  std::vector<float> q(static_cast<size_t>(all_rows * width), 0.5f), out(q.size());
  const std::vector<int32_t> tokens(static_cast<size_t>(all_rows));
  Backend& backend = bench::backend();
  const auto context = backend.createContext();
  const AttentionArgs args{
      {q.data(), all_rows, width, width}, kHeads, 0.125f, kv, {out.data(), all_rows, width, width}};
  for (auto _ : state) {
    backend.prepare({tokens, spans, {}}, *context);
    backend.attention(args, *context, {});
  }
  const double keys = static_cast<double>(sequences) * rows * (past + (rows + 1) / 2.0);
  const double calls = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] =
      benchmark::Counter(calls * 4e-9 * keys * static_cast<double>(width), benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(
      calls * 1e-9 * sequences * (past + rows) * static_cast<double>(kvBlockBytes(kv)) / kv.tokens_per_block,
      benchmark::Counter::kIsRate);
}

BENCHMARK(attentionBench)
    ->ArgNames({"sequences", "rows", "past"})
    ->Args({1, 1, 128})
    ->Args({1, 1, 4096})
    ->Args({32, 1, 128})
    ->Args({32, 1, 1024})
    ->Args({1, 128, 0})
    ->Args({1, 1024, 0})
    ->Args({4, 512, 512})
    ->UseRealTime();

}  // namespace
}  // namespace chorus
