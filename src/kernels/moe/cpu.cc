#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/moe/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

// out = weights[0] * y[0] + weights[1] * y[1] + ... + factor * shared, where y[i] is row place[i] of `outputs`; shared
// may be null or out itself.
void addOutputs(const float* outputs, int64_t stride, const int32_t* place, const float* weights, int64_t count,
                const float* shared, float factor, float* out, int64_t cols) {
  const Floats d;
  for (int64_t c = 0; c < cols; c += kFloatLanes) {
    FloatVec sum = hn::Mul(hn::Set(d, weights[0]), loadColumns(outputs + place[0] * stride, c, cols));
    for (int64_t i = 1; i < count; ++i) {
      sum = mulAdd(hn::Set(d, weights[i]), loadColumns(outputs + place[i] * stride, c, cols), sum);
    }
    if (shared != nullptr) sum = mulAdd(hn::Set(d, factor), loadColumns(shared, c, cols), sum);
    storeColumns(sum, out, c, cols);
  }
}

using AddOutputs = void (*)(const float*, int64_t, const int32_t*, const float*, int64_t, const float*, float, float*,
                            int64_t);
AddOutputs adder() { return &addOutputs; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/gated_activation/cpu.h"
#include "kernels/linear/cpu.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

using AddOutputs = void (*)(const float*, int64_t, const int32_t*, const float*, int64_t, const float*, float, float*,
                            int64_t);
IsaTable<AddOutputs> table() { CHORUS_ISA_TABLE(AddOutputs, adder); }

void route(const MoeArgs& args, CpuWorkspace& workspace, MoePlan& plan) {
  constexpr int64_t kExponential = 10;  // cost of one, in elements
  const int64_t experts = args.logits.cols, top_k = args.routing.top_k;
  plan.experts.resize(static_cast<size_t>(args.x.rows * top_k));
  plan.weights.resize(static_cast<size_t>(args.x.rows * top_k));
  workspace.forEachPiece(args.x.rows, kExponential * experts, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      routeRow(args.logits.row(r), experts, args.routing, plan.experts.data() + r * top_k,
               plan.weights.data() + r * top_k);
    }
  });
}

// Sorts the pairs by expert and group.
void sortPairs(const MoeArgs& args, std::span<const MoeGroup> groups, MoePlan& plan) {
  const auto top_k = static_cast<size_t>(args.routing.top_k);
  plan.group_of.assign(static_cast<size_t>(args.x.rows), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const RowRange range : groups[g].ranges) {
      const RowRange rows = rangeWithin(range, args.first_row, args.x.rows);
      std::fill(plan.group_of.begin() + rows.begin, plan.group_of.begin() + rows.end, static_cast<int32_t>(g));
    }
  }
  const size_t keys_of_expert = groups.size() + 1;
  const auto keyOf = [&](size_t pair) {
    const int32_t expert = plan.experts[pair];
    int32_t group = plan.group_of[pair / top_k];
    if (group >= 0) {
      const MoeGroup& own = groups[static_cast<size_t>(group)];
      if (own.fc.of(expert).empty() && own.proj.of(expert).empty()) group = -1;
    }
    return static_cast<size_t>(expert) * keys_of_expert + static_cast<size_t>(group + 1);
  };
  // Counts the pairs of each key one place further on, so that the running sum is the first gathered row of each key,
  // and placing the pairs turns it into the first one after them.
  const size_t keys = static_cast<size_t>(args.logits.cols) * keys_of_expert;
  plan.begin.assign(keys + 2, 0);
  for (size_t pair = 0; pair < plan.experts.size(); ++pair) ++plan.begin[keyOf(pair) + 2];
  for (size_t key = 2; key < plan.begin.size(); ++key) plan.begin[key] += plan.begin[key - 1];
  plan.place.resize(plan.experts.size());
  plan.row.resize(plan.experts.size());
  for (size_t pair = 0; pair < plan.experts.size(); ++pair) {
    const int32_t place = plan.begin[keyOf(pair) + 1]++;
    plan.place[pair] = place;
    plan.row[static_cast<size_t>(place)] = static_cast<int32_t>(pair / top_k);
  }
}

// Makes a group for each key that has gathered rows.
void groupPairs(const MoeArgs& args, std::span<const MoeGroup> groups, MoePlan& plan) {
  const size_t keys_of_expert = groups.size() + 1;
  const auto has_rows = [&](size_t key) { return plan.begin[key] < plan.begin[key + 1]; };
  plan.ranges.clear();
  plan.fc.clear();
  plan.proj.clear();
  // The groups have spans of ranges, which must not be reallocated afterwards.
  for (size_t key = 0; key + 2 < plan.begin.size(); ++key) {
    if (has_rows(key)) plan.ranges.push_back({plan.begin[key], plan.begin[key + 1]});
  }
  const RowRange* range = plan.ranges.data();
  for (size_t key = 0; key + 2 < plan.begin.size(); ++key) {
    if (!has_rows(key)) continue;
    const auto expert = static_cast<int64_t>(key / keys_of_expert);
    const size_t group = key % keys_of_expert;
    const MoeGroup terms = group == 0 ? MoeGroup() : groups[group - 1];
    plan.fc.push_back({{range, 1}, terms.fc.of(expert), expertOf(args.fc, expert)});
    plan.proj.push_back({{range, 1}, terms.proj.of(expert), expertOf(args.proj, expert)});
    ++range;
  }
}

// A weight without outputs, for calls in which every row has a weight of its own.
PackedWeight noWeight(const PackedWeight& like) { return {nullptr, like.format(), 0, like.in}; }
}  // namespace

void moeCpu(const MoeArgs& args, const StepBatch& batch, CpuWorkspace& workspace, MoePlan& plan,
            LinearPlan& linear_plan) {
  assert(args.out.rows == args.x.rows && args.logits.rows == args.x.rows && args.fc.out == 2 * args.proj.in);
  const AddOutputs add = workspace.select(Op::kMoe, table());
  if (args.x.rows == 0) return;
  route(args, workspace, plan);
  const auto groups = batch.groups[args.groups];
  sortPairs(args, groups, plan);
  groupPairs(args, groups, plan);

  const auto pairs = static_cast<int64_t>(plan.row.size());
  const int64_t hidden = args.x.cols, f = args.proj.in, top_k = args.routing.top_k;
  // The outputs overwrite the gathered rows, and the activated values the first half of the outputs of fc.
  const Matrix gathered = {args.workspace, pairs, hidden, hidden};
  const Matrix fc = {gathered.row(pairs), pairs, 2 * f, 2 * f};
  const Matrix activated = {fc.data, pairs, f, fc.stride};
  workspace.forEachPiece(pairs, hidden, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = args.x.row(plan.row[static_cast<size_t>(i)]);
      std::memcpy(gathered.row(i), row, static_cast<size_t>(hidden) * sizeof(float));
    }
  });
  const GroupList<RowGroup> all = {0, static_cast<int32_t>(plan.fc.size())};
  linearCpu({.x = gathered, .weight = noWeight(args.fc), .y = fc, .groups = all}, {.groups = {.linear = plan.fc}},
            workspace, linear_plan);
  gatedActivationCpu({.fc_gate = fc, .kind = args.kind, .out = activated, .activates_second = true}, workspace);
  linearCpu({.x = activated, .weight = noWeight(args.proj), .y = gathered, .groups = all},
            {.groups = {.linear = plan.proj}}, workspace, linear_plan);

  workspace.forEachPiece(args.x.rows, hidden * (top_k + 1), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* shared = args.shared.data == nullptr ? nullptr : args.shared.row(r);
      const float* gate = args.shared_gate.data == nullptr ? nullptr : args.shared_gate.row(r);
      const float factor = gate == nullptr ? 1.0f : 1.0f / (1.0f + std::exp(-*gate));
      add(gathered.row(0), hidden, plan.place.data() + r * top_k, plan.weights.data() + r * top_k, top_k, shared,
          factor, args.out.row(r), hidden);
    }
  });
}

std::vector<Variant> moeVariants() { return variantsOf(Op::kMoe, table()); }
}  // namespace chorus
#endif
