#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_activation/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/activations-inl.h"
#include "kernels/gated_activation/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

template <class Activation>
void activateRow(const float* fc, const float* gate, const float* fc_bias, const float* gate_bias, float* out,
                 int64_t count) {
  for (int64_t i = 0; i < count; i += kFloatLanes) {
    const int64_t left = count - i;
    const auto load = [i, left](const float* p)
                          HWY_ATTR { return left >= kFloatLanes ? hn::LoadU(Floats(), p + i) : loadSome(p + i, left); };
    FloatVec x = load(fc);
    FloatVec y = load(gate);
    if (fc_bias != nullptr) {
      x = hn::Add(x, load(fc_bias));
      y = hn::Add(y, load(gate_bias));
    }
    const FloatVec product = hn::Mul(Activation::apply(x), y);
    if (left >= kFloatLanes) {
      hn::StoreU(product, Floats(), out + i);
    } else {
      storeSome(product, left, out + i);
    }
  }
}

void activate(ActivationKind kind, const float* fc, const float* gate, const float* fc_bias, const float* gate_bias,
              float* out, int64_t count) {
  switch (kind) {
    case ActivationKind::kSilu:
      return activateRow<Silu>(fc, gate, fc_bias, gate_bias, out, count);
    case ActivationKind::kGelu:
      return activateRow<Gelu>(fc, gate, fc_bias, gate_bias, out, count);
    case ActivationKind::kGeluTanh:
      return activateRow<GeluTanh>(fc, gate, fc_bias, gate_bias, out, count);
    case ActivationKind::kRelu:
      return activateRow<Relu>(fc, gate, fc_bias, gate_bias, out, count);
    case ActivationKind::kReluSquared:
      return activateRow<ReluSquared>(fc, gate, fc_bias, gate_bias, out, count);
    case ActivationKind::kTanh:
      return activateRow<Tanh>(fc, gate, fc_bias, gate_bias, out, count);
  }
}

using ActivateRow = void (*)(ActivationKind, const float*, const float*, const float*, const float*, float*, int64_t);
ActivateRow row() { return &activate; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using ActivateRow = void (*)(ActivationKind, const float*, const float*, const float*, const float*, float*, int64_t);
IsaTable<ActivateRow> table() { CHORUS_ISA_TABLE(ActivateRow, row); }
}  // namespace

void gatedActivationCpu(const GatedActivationArgs& args, CpuWorkspace& workspace) {
  // Columns per index of forEachPiece: enough to amortise a call, few enough to divide a single row among threads.
  constexpr int64_t kSlice = 1024;
  const int64_t cols = args.out.cols;
  const int64_t slices = (cols + kSlice - 1) / kSlice;
  const ActivateRow run = workspace.select(Op::kGatedActivation, table());
  // An exponential and a division cost about ten times as much as moving an element.
  workspace.forEachPiece(args.out.rows * slices, 10 * std::min(cols, kSlice), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i % slices * kSlice;
      const float* first = args.fc_gate.row(i / slices) + c;
      const float* bias = args.bias == nullptr ? nullptr : args.bias + c;
      const auto half = [&](const float* of, bool is_second) { return of == nullptr || !is_second ? of : of + cols; };
      const bool swapped = args.activates_second;
      run(args.kind, half(first, swapped), half(first, !swapped), half(bias, swapped), half(bias, !swapped),
          args.out.row(i / slices) + c, std::min(kSlice, cols - c));
    }
  });
}

std::vector<Variant> gatedActivationVariants() { return variantsOf(Op::kGatedActivation, table()); }
}  // namespace chorus
#endif
