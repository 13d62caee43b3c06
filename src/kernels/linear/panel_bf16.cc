#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_bf16.cc"
#include <hwy/foreach_target.h>
#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const PanelKernels* bf16Kernels() { return formatKernels<Bfloat16Panels>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const PanelKernels*> bf16PanelKernels() {
#if defined(__x86_64__)
  CHORUS_ISA_TABLE_AND(const PanelKernels*, bf16Kernels, {Isa::kAvx512Bf16, bf16DotKernels()},
                       {Isa::kAmx, bf16TileKernels()});
#else
  CHORUS_ISA_TABLE(const PanelKernels*, bf16Kernels);
#endif
}
}  // namespace chorus
#endif
