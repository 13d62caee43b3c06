#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/activation/cpu.h"
#include "kernels/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

template <class Activation>
void activateRow(const float* bias, float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += kFloatLanes) {
    const int64_t left = count - i;
    const auto load = [i, left](const float* p)
                          HWY_ATTR { return left >= kFloatLanes ? hn::LoadU(Floats(), p + i) : loadSome(p + i, left); };
    FloatVec v = load(x);
    if (bias != nullptr) v = hn::Add(v, load(bias));
    v = Activation::apply(v);
    if (left >= kFloatLanes) {
      hn::StoreU(v, Floats(), x + i);
    } else {
      storeSome(v, left, x + i);
    }
  }
}

void activate(ActivationKind kind, const float* bias, float* x, int64_t count) {
  switch (kind) {
    case ActivationKind::kSilu:
      return activateRow<Silu>(bias, x, count);
    case ActivationKind::kGelu:
      return activateRow<Gelu>(bias, x, count);
    case ActivationKind::kGeluTanh:
      return activateRow<GeluTanh>(bias, x, count);
    case ActivationKind::kRelu:
      return activateRow<Relu>(bias, x, count);
    case ActivationKind::kReluSquared:
      return activateRow<ReluSquared>(bias, x, count);
    case ActivationKind::kTanh:
      return activateRow<Tanh>(bias, x, count);
  }
}

using ActivateSlice = void (*)(ActivationKind, const float*, float*, int64_t);
ActivateSlice slice() { return &activate; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using ActivateSlice = void (*)(ActivationKind, const float*, float*, int64_t);
IsaTable<ActivateSlice> table() { CHORUS_ISA_TABLE(ActivateSlice, slice); }
}  // namespace

void activationCpu(const ActivationArgs& args, CpuWorkspace& workspace) {
  // Columns per index of forEachPiece: enough to amortise a call, few enough to divide a single row among threads.
  constexpr int64_t kSlice = 1024;
  const int64_t cols = args.x.cols;
  const int64_t slices = (cols + kSlice - 1) / kSlice;
  const ActivateSlice run = workspace.select(Op::kActivation, table());
  // An exponential and a division cost about ten times as much as moving an element.
  workspace.forEachPiece(args.x.rows * slices, 10 * std::min(cols, kSlice), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i % slices * kSlice;
      run(args.kind, args.bias == nullptr ? nullptr : args.bias + c, args.x.row(i / slices) + c,
          std::min(kSlice, cols - c));
    }
  });
}

std::vector<Variant> activationVariants() { return variantsOf(Op::kActivation, table()); }
}  // namespace chorus
#endif
