#include "kernels/kernel_bench.h"
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

// Formats of the benchmarked weights, with the most common groups and scales.
WeightFormat benchFormat(DType dtype, InputFormat activations = InputFormat::kInt16) {
  if (dtype == DType::kInt8) return {dtype, 0, DType::kBFloat16, activations};
  if (dtype == DType::kInt4) return {dtype, 64, DType::kBFloat16, activations};
  return dtype;
}

BenchCase plain(const WeightFormat& format, int64_t rows, int64_t in, int64_t out, bool small) {
  const bool other_group = format.group != benchFormat(format.dtype).group;
  return {.shape = fmt::format("{} rows, {} -> {}{}{}", rows, in, out,
                               other_group ? fmt::format(", groups of {}", format.group) : "",
                               format.activations == InputFormat::kInt16
                                   ? ""
                                   : fmt::format(", {} activations", inputFormatName(format.activations))),
          .dtype = format.dtype,
          .small = small,
          .bytes = static_cast<double>(packedBytes(format, out, in)),
          .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out),
          .prepare = [=](Backend& backend, size_t cold_bytes) -> BenchCall {
            struct State {
              bench::ColdWeights weights;
              bench::BenchMatrix x, y;
              std::unique_ptr<StepContext> context;
            };
            const auto s = std::make_shared<State>(State{bench::ColdWeights(backend, format, out, in, cold_bytes),
                                                         {backend, rows, in},
                                                         {backend, rows, out},
                                                         backend.createContext()});
            return [s, &backend] {
              backend.linear({.x = s->x.view(), .weight = s->weights.next(), .y = s->y.view()}, *s->context, {});
            };
          }};
}

// Every `rows_each` rows have a different rank-16 adapter over the whole output. part: the format of A and B.
BenchCase adapters(DType dtype, const WeightFormat& part, int64_t rows, int64_t rows_each, int64_t in, int64_t out) {
  constexpr int64_t kRank = 16;
  const int64_t count = rows / rows_each;
  const int64_t part_bytes = count * (packedBytes(part, kRank, in) + packedBytes(part, out, kRank));
  const std::string users = rows_each == 1 ? "row" : fmt::format("{} rows", rows_each);
  return {.shape = fmt::format("{} rows, {} -> {}, one {} adapter of rank {} per {}", rows, in, out,
                               dtypeName(part.dtype), kRank, users),
          .dtype = dtype,
          .bytes = static_cast<double>(packedBytes(benchFormat(dtype), out, in) + part_bytes),
          .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(in * out + kRank * (in + out)),
          .prepare = [=](Backend& backend, size_t cold_bytes) -> BenchCall {
            struct State {
              bench::ColdWeights weights, a, b;
              bench::BenchMatrix x, y;
              std::unique_ptr<StepContext> context;
              std::vector<RowRange> ranges;
              std::vector<LoraTerm> parts;
              std::vector<RowGroup> groups;
            };
            const auto s =
                std::make_shared<State>(State{bench::ColdWeights(backend, benchFormat(dtype), out, in, cold_bytes),
                                              bench::ColdWeights(backend, part, kRank, in, cold_bytes),
                                              bench::ColdWeights(backend, part, out, kRank, cold_bytes),
                                              {backend, rows, in},
                                              {backend, rows, out},
                                              backend.createContext(),
                                              std::vector<RowRange>(static_cast<size_t>(count)),
                                              std::vector<LoraTerm>(static_cast<size_t>(count)),
                                              std::vector<RowGroup>(static_cast<size_t>(count))});
            return [s, &backend, each = static_cast<int32_t>(rows_each)] {
              for (size_t i = 0; i < s->groups.size(); ++i) {
                const int32_t begin = static_cast<int32_t>(i) * each;
                s->ranges[i] = {begin, begin + each};
                s->parts[i] = {.a = s->a.next(), .b = s->b.next()};
                s->groups[i] = {{&s->ranges[i], 1}, {&s->parts[i], 1}, {}};
              }
              backend.prepare({.groups = {.linear = s->groups}}, *s->context);
              const GroupList<RowGroup> all = {0, static_cast<int32_t>(s->groups.size())};
              backend.linear({.x = s->x.view(), .weight = s->weights.next(), .y = s->y.view(), .groups = all},
                             *s->context, {});
            };
          }};
}
}  // namespace

std::vector<BenchCase> linearBench() {
  std::vector<BenchCase> cases;
  for (const DType dtype : panelFormats()) {
    cases.push_back(plain(benchFormat(dtype), 3, 100, 50, true));
    for (const int64_t rows : {1, 8, 32, 128, 512}) {
      cases.push_back(
          plain(benchFormat(dtype), rows, 2048, 2 * 5632, false));  // the gated MLP's first half, the widest
      cases.push_back(plain(benchFormat(dtype), rows, 5632, 2048, false));
      const auto with = [&](InputFormat activations, std::optional<int64_t> group = std::nullopt) {
        WeightFormat format = benchFormat(dtype, activations);
        format.group = group.value_or(format.group);
        cases.push_back(plain(format, rows, 2048, 2 * 5632, false));
      };
      if (isQuantised(dtype)) with(InputFormat::kInt8);
      if (dtype == DType::kInt8) with(InputFormat::kInt8PerToken);
      if (dtype == DType::kInt4) with(InputFormat::kInt16, 128), with(InputFormat::kInt8, 128);
    }
    for (const DType part : {isQuantised(dtype) ? DType::kBFloat16 : dtype, DType::kInt8}) {
      for (const int64_t rows : {1, 8, 32}) cases.push_back(adapters(dtype, part, rows, 1, 2048, 2560));
    }
    // The context of 8 prompts, with and without adapters.
    if (isQuantised(dtype)) continue;
    cases.push_back(plain(dtype, 1024, 2048, 2560, false));
    cases.push_back(adapters(dtype, dtype, 1024, 128, 2048, 2560));
  }
  return cases;
}

}  // namespace chorus
