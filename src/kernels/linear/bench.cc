// Linear against its roofs: bytes of weights a second, and operations a second.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/bench_util.h"
#include "kernels/roofline.h"

namespace chorus {
namespace {

// Enough copies of one weight that no call finds it in a cache, as in a model's many layers.
struct Weights {
  AlignedBuffer memory;
  std::vector<PackedWeight> copies;

  Weights(DType dtype, int64_t out, int64_t in) {
    constexpr size_t kBytes = size_t{512} << 20;
    const auto bytes = static_cast<size_t>(packedBytes(dtype, out, in));
    memory = AlignedBuffer(std::max(bytes, kBytes / bytes * bytes));
    std::mt19937 engine(7);
    auto* words = memory.as<uint32_t>();
    // Finite in every format: no exponent is all ones.
    for (size_t i = 0; i < memory.size() / 4; ++i) words[i] = static_cast<uint32_t>(engine()) & 0xbbffbbffu;
    for (size_t at = 0; at < memory.size(); at += bytes)
      copies.push_back({memory.as<char>() + at, dtype, out, in});
  }
};

void linearBench(benchmark::State& state, DType dtype) {
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const Weights weights(dtype, out, in);
  std::vector<float> x(static_cast<size_t>(rows * in), 0.5f), y(static_cast<size_t>(rows * out));
  const auto context = bench::backend().createContext();
  size_t next = 0;
  for (auto _ : state) {
    const PackedWeight& weight = weights.copies[next++ % weights.copies.size()];
    bench::backend().linear({{x.data(), rows, in, in}, weight, {y.data(), rows, out, out}, {}}, *context, {});
  }
  const auto calls = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(calls * static_cast<double>(packedBytes(dtype, out, in)) * 1e-9,
                                              benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(
      calls * 2e-9 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out),
      benchmark::Counter::kIsRate);
}

// One row of `rows` with a different rank-16 adapter each, over the whole output.
void adaptersBench(benchmark::State& state) {
  const int64_t rows = state.range(0), in = 2048, out = 2048, rank = 16;
  const Weights weights(DType::kBFloat16, out, in), a(DType::kBFloat16, rank, in),
      b(DType::kBFloat16, out, rank);
  std::vector<float> x(static_cast<size_t>(rows * in), 0.5f), y(static_cast<size_t>(rows * out));
  const auto context = bench::backend().createContext();
  size_t next = 0, next_adapter = 0;
  std::vector<RowRange> ranges(static_cast<size_t>(rows));
  std::vector<LinearPart> parts(static_cast<size_t>(rows));
  std::vector<RowGroup> groups(static_cast<size_t>(rows));
  for (auto _ : state) {
    for (size_t r = 0; r < groups.size(); ++r, ++next_adapter) {
      ranges[r] = {static_cast<int32_t>(r), static_cast<int32_t>(r) + 1};
      parts[r] = {0, a.copies[next_adapter % a.copies.size()], b.copies[next_adapter % b.copies.size()]};
      groups[r] = {{&ranges[r], 1}, {&parts[r], 1}};
    }
    const PackedWeight& weight = weights.copies[next++ % weights.copies.size()];
    bench::backend().linear({{x.data(), rows, in, in}, weight, {y.data(), rows, out, out}, groups}, *context,
                            {});
  }
  const int64_t bytes =
      packedBytes(DType::kBFloat16, out, in) +
      rows * (packedBytes(DType::kBFloat16, rank, in) + packedBytes(DType::kBFloat16, out, rank));
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * bytes) * 1e-9, benchmark::Counter::kIsRate);
}

void readRoof(benchmark::State& state) {
  ThreadPool pool(bench::threads());
  double best = 0;
  for (auto _ : state) best = std::max(best, measureReadBandwidth(pool));
  state.counters["GB/s"] = best * 1e-9;
}
void matmulRoof(benchmark::State& state) {
  ThreadPool pool(bench::threads());
  double best = 0;
  for (auto _ : state) best = std::max(best, measureMatmulPeak(pool, bench::isa()));
  state.counters["GFLOP/s"] = best * 1e-9;
}

BENCHMARK(readRoof)->Iterations(1)->UseRealTime();
BENCHMARK(matmulRoof)->Iterations(1)->UseRealTime();
BENCHMARK_CAPTURE(linearBench, bfloat16, DType::kBFloat16)
    ->ArgNames({"rows", "in", "out"})
    ->ArgsProduct({{1, 8, 32, 128, 512}, {2048, 5632}, {2048, 5632}})
    ->UseRealTime();
BENCHMARK_CAPTURE(linearBench, float16, DType::kFloat16)
    ->ArgsProduct({{1, 128}, {2048}, {5632}})
    ->UseRealTime();
BENCHMARK_CAPTURE(linearBench, float32, DType::kFloat32)
    ->ArgsProduct({{1, 8, 128}, {2048}, {5632}})
    ->UseRealTime();
BENCHMARK(adaptersBench)->ArgName("rows")->Arg(1)->Arg(8)->Arg(32)->UseRealTime();

}  // namespace
}  // namespace chorus
