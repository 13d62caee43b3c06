// Random weights, adapters and calls of the linear for tests, and their expected results in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/testing/test_util.h"

namespace chorus::linear_test {

using kernel_test::Values;

struct Weight {
  AlignedBuffer memory;
  PackedWeight view;
};

// A format of this dtype; for a quantised dtype, with a random group, type of scales and format of activations.
inline WeightFormat anyFormat(Values& values, DType dtype) {
  if (!isQuantised(dtype)) return dtype;
  constexpr int64_t kGroups[] = {0, 32, 64, 128};
  constexpr DType kScales[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  WeightFormat format{dtype, kGroups[values.integer(0, 3)], kScales[values.integer(0, 2)],
                      static_cast<InputFormat>(values.integer(0, 1))};
  const bool one_scale = dtype == DType::kInt8 && format.group == 0 && format.scale_dtype != DType::kFloat32;
  if (one_scale && values.integer(0, 1) == 0) format.activations = InputFormat::kInt8PerToken;
  return format;
}

// Random rows in the form that packRows takes, and scales in the form that packScales takes. The integers cover the
// whole range of the format; scales are about 1 / 100.
struct Rows {
  std::vector<std::byte> elements;
  std::vector<float> scales;  // [out, groups]
  int64_t groups = 0;

  Rows(Values& values, const WeightFormat& format, int64_t out, int64_t in, float size = 1.0f) {
    if (!isQuantised(format.dtype)) {
      elements = kernel_test::asDtype(values.reals(out * in, -size, size), format.dtype);
      return;
    }
    groups = format.group > 0 ? (in + format.group - 1) / format.group : 1;
    elements.resize(static_cast<size_t>((format.dtype == DType::kInt4 ? (out + 1) / 2 : out) * in));
    for (std::byte& element : elements) element = static_cast<std::byte>(values.integer(0, 255));
    scales = values.reals(out * groups, size * 0.005f, size * 0.02f);
  }
  // Packs rows [begin, end) into the packed weight at dst.
  void pack(const WeightFormat& format, int64_t begin, int64_t end, int64_t in, void* dst) const {
    const bool quantised = isQuantised(format.dtype);
    const int64_t row_bytes = quantised ? in : in * static_cast<int64_t>(dtypeSize(format.dtype));
    const int64_t first = format.dtype == DType::kInt4 ? begin / 2 : begin;
    packRows(elements.data() + first * row_bytes, format, end - begin, in, begin, dst);
    if (quantised) {
      packScales(scales.data() + begin * groups, DType::kFloat32, format, end - begin, in, begin, dst);
    }
  }
};

inline Weight makeWeight(Values& values, const WeightFormat& format, int64_t out, int64_t in, float size = 1.0f) {
  Weight weight;
  weight.memory = AlignedBuffer(static_cast<size_t>(std::max<int64_t>(64, packedBytes(format, out, in))));
  Rows(values, format, out, in, size).pack(format, 0, out, in, weight.memory.data());
  weight.view = {weight.memory.data(), format, out, in};
  return weight;
}

inline std::vector<float> unpackAll(const PackedWeight& weight) {
  std::vector<float> all(static_cast<size_t>(weight.out * weight.in));
  for (int64_t o = 0; o < weight.out; ++o) unpackRow(weight, o, all.data() + o * weight.in);
  return all;
}

// The absolute values of all elements of the weight, as float32.
inline Weight absolute(const PackedWeight& weight) {
  std::vector<float> all = unpackAll(weight);
  for (float& value : all) value = std::abs(value);
  Weight result;
  result.memory = AlignedBuffer(static_cast<size_t>(packedBytes(DType::kFloat32, weight.out, weight.in)));
  packRows(all.data(), DType::kFloat32, weight.out, weight.in, 0, result.memory.data());
  result.view = {result.memory.data(), DType::kFloat32, weight.out, weight.in};
  return result;
}

// Adapters of a linear, with storage that outlives the calls.
struct Adapters {
  std::deque<Weight> weights;
  std::deque<std::vector<float>> vectors;  // biases and magnitudes
  std::vector<std::vector<LoraTerm>> parts;
  std::vector<PackedWeight> own;  // one per adapter; without data: the adapter uses the base's weight

  // Adds an adapter with LoRA terms of these ranks (0 is allowed), of the type of the model that `base` belongs to or,
  // one adapter in three, of int8.
  // own_weight: the adapter also has its own weight, of any format and with more or fewer outputs than the base.
  void add(Values& values, const PackedWeight& base, const std::vector<int64_t>& ranks, bool own_weight = false) {
    const DType model_type = isQuantised(base.dtype) ? base.scale_dtype : base.dtype;
    const WeightFormat term_format = values.integer(0, 2) == 0 ? DType::kInt8 : model_type;
    own.emplace_back();
    if (own_weight) {
      const std::span<const DType> formats = panelFormats();
      const DType format = formats[static_cast<size_t>(values.integer(0, std::ssize(formats) - 1))];
      const int64_t outputs = std::max<int64_t>(1, base.out + values.integer(-20, 40));
      weights.push_back(makeWeight(values, anyFormat(values, format), outputs, base.in));
      own.back() = weights.back().view;
    }
    const int64_t out = own_weight ? own.back().out : base.out;
    // Half of the adapters have terms of the most common kind: whole panels without bias and magnitude.
    const bool common = out >= kPanelCols && values.integer(0, 1) == 0;
    std::vector<LoraTerm> list;
    for (const int64_t rank : ranks) {
      LoraTerm part;
      part.out_begin = common ? kPanelCols * values.integer(0, out / kPanelCols - 1) : values.integer(0, out - 1);
      const int64_t left = out - part.out_begin;
      const int64_t features = common ? kPanelCols * values.integer(1, left / kPanelCols) : values.integer(1, left);
      if (rank > 0) {
        weights.push_back(makeWeight(values, term_format, rank, base.in));
        part.a = weights.back().view;
        weights.push_back(makeWeight(values, term_format, features, rank));
        part.b = weights.back().view;
      } else {
        part.b.out = features;
      }
      part.scale = values.real(0.25f, 2.0f);
      const auto some = [&](float low, float high) -> const float* {
        if (common || values.integer(0, 1) == 0) return nullptr;
        vectors.push_back(values.reals(features, low, high));
        return vectors.back().data();
      };
      part.bias = some(-1.0f, 1.0f);
      part.magnitude = some(0.5f, 1.5f);
      list.push_back(part);
    }
    parts.push_back(list);
  }
  // Copies adapters with the absolute value of every element. If with_weights is false, own weights become zero, so
  // that only the LoRA terms are left.
  static Adapters absolutes(const Adapters& of, bool with_weights) {
    Adapters result;
    result.parts = of.parts;
    result.own = of.own;
    const auto replace = [&](PackedWeight& weight) {
      result.weights.push_back(absolute(weight));
      weight = result.weights.back().view;
    };
    for (PackedWeight& own : result.own) {
      if (own.data == nullptr) continue;
      replace(own);
      if (!with_weights) std::memset(result.weights.back().memory.data(), 0, result.weights.back().memory.size());
    }
    for (auto& parts : result.parts) {
      for (LoraTerm& part : parts) {
        part.scale = std::abs(part.scale);
        if (part.bias != nullptr) {
          std::vector<float> bias(part.bias, part.bias + part.b.out);
          for (float& value : bias) value = std::abs(value);
          result.vectors.push_back(std::move(bias));
          part.bias = result.vectors.back().data();
        }
        if (part.a.out == 0) continue;
        replace(part.a);
        replace(part.b);
      }
    }
    return result;
  }
};

struct Assignment {
  std::vector<std::vector<RowRange>> ranges;
  std::vector<RowGroup> groups;

  // adapter_of[row]: index into adapters.parts, or -1.
  Assignment(const std::vector<int>& adapter_of, const Adapters& adapters) : ranges(adapters.parts.size()) {
    for (size_t row = 0; row < adapter_of.size(); ++row) {
      if (adapter_of[row] < 0) continue;
      auto& list = ranges[static_cast<size_t>(adapter_of[row])];
      const auto r = static_cast<int32_t>(row);
      if (!list.empty() && list.back().end == r) {
        list.back().end = r + 1;
      } else {
        list.push_back({r, r + 1});
      }
    }
    for (size_t g = 0; g < ranges.size(); ++g) {
      if (!ranges[g].empty()) groups.push_back({ranges[g], adapters.parts[g], adapters.own[g]});
    }
  }
};

// Outputs of the widest weight among the base's and the adapters'.
inline int64_t widest(const PackedWeight& weight, const Adapters& adapters) {
  int64_t width = weight.out;
  for (const PackedWeight& own : adapters.own) width = std::max(width, own.out);
  return width;
}

// Initial value of y. Columns without an output keep it.
inline constexpr float kUntouched = -12345.0f;

// width: number of columns of y; 0: the weight's outputs. first_row: as in LinearArgs.
inline std::vector<float> run(Backend& backend, std::vector<float>& x, const PackedWeight& weight,
                              std::span<const RowGroup> groups = {}, int64_t width = 0, int32_t first_row = 0) {
  const auto rows = static_cast<int64_t>(x.size()) / weight.in;
  if (width == 0) width = weight.out;
  std::vector<float> y(static_cast<size_t>(rows * width), kUntouched);
  const auto context = kernel_test::prepared(backend, {.groups = {.linear = groups}});
  backend.linear({.x = kernel_test::view(x, rows, weight.in),
                  .weight = weight,
                  .y = kernel_test::view(y, rows, width),
                  .groups = kernel_test::allOf(groups),
                  .first_row = first_row},
                 *context, {});
  return y;
}

// Largest rounding error of each element: epsilon times the number of roundings times the sum of absolute products. x
// is already rounded to the type that the products take. If the adapters' products take inputs of bfloat16, A x is
// rounded once more.
inline std::vector<float> tolerance(std::vector<float> x, const PackedWeight& weight, DType part_inputs,
                                    const std::vector<int>& adapter_of = {}, const Adapters& adapters = {},
                                    int64_t width = 0) {
  for (float& value : x) value = std::abs(value);
  const Weight w = absolute(weight);
  const Adapters all = Adapters::absolutes(adapters, true);
  int64_t roundings = weight.in + 4;
  for (const auto& parts : all.parts) {
    for (const LoraTerm& part : parts) roundings += part.a.out + part.a.in + 6;
  }
  const auto reference = createBackend({.name = "reference"});
  auto result = run(*reference, x, w.view, Assignment(adapter_of, all).groups, width);
  for (float& value : result) value = std::abs(value) * static_cast<float>(roundings) * 1.2e-7f;
  if (part_inputs == DType::kBFloat16) {
    std::memset(w.memory.data(), 0, w.memory.size());
    const Adapters only_parts = Adapters::absolutes(adapters, false);
    const auto parts = run(*reference, x, w.view, Assignment(adapter_of, only_parts).groups, width);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] != kUntouched) result[i] += std::ldexp(parts[i], -8);
    }
  }
  return result;
}

// Expected result in double precision, on weights as their format holds them. taken(weight): the inputs as the product
// with that weight takes them.
template <typename Taken>
std::vector<float> exactly(const Taken& taken, const PackedWeight& weight, std::span<const RowGroup> groups = {},
                           int64_t width = 0) {
  const std::vector<float> base_x = taken(weight);
  const auto rows = static_cast<int64_t>(base_x.size()) / weight.in;
  if (width == 0) width = weight.out;
  const auto product = [](const auto& v, int64_t begin, const PackedWeight& w, const std::vector<float>& all) {
    std::vector<double> result(static_cast<size_t>(w.out));
    for (int64_t o = 0; o < w.out; ++o) {
      double& sum = result[static_cast<size_t>(o)];
      for (int64_t i = 0; i < w.in; ++i) {
        sum += double{v[static_cast<size_t>(begin + i)]} * all[static_cast<size_t>(o * w.in + i)];
      }
    }
    return result;
  };
  std::vector<std::vector<double>> y;
  const auto all = unpackAll(weight);
  for (int64_t r = 0; r < rows; ++r) y.push_back(product(base_x, r * weight.in, weight, all));
  for (const RowGroup& group : groups) {
    std::vector<float> own, own_x;
    if (group.weight.data != nullptr) own = unpackAll(group.weight), own_x = taken(group.weight);
    for (const RowRange range : group.ranges) {
      for (int64_t r = range.begin; r < range.end && !own.empty(); ++r) {
        y[static_cast<size_t>(r)] = product(own_x, r * weight.in, group.weight, own);
      }
    }
    for (const LoraTerm& part : group.parts) {
      const auto a = unpackAll(part.a), b = unpackAll(part.b), part_x = taken(part.a);
      for (const RowRange range : group.ranges) {
        for (int64_t r = range.begin; r < range.end; ++r) {
          const auto added = product(product(part_x, r * weight.in, part.a, a), 0, part.b, b);
          for (int64_t o = 0; o < part.b.out; ++o) {
            double& value = y[static_cast<size_t>(r)][static_cast<size_t>(part.out_begin + o)];
            const double bias = part.bias != nullptr ? part.bias[o] : 0.0;
            value += part.scale * (added[static_cast<size_t>(o)] + bias);
            if (part.magnitude != nullptr) value *= part.magnitude[o];
          }
        }
      }
    }
  }
  std::vector<float> result;
  for (auto& row : y) {
    row.resize(static_cast<size_t>(width), kUntouched);
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

}  // namespace chorus::linear_test
