#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_int4.cc"
#include <hwy/foreach_target.h>

#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const PanelKernels* int4Kernels() { return quantisedKernels<4>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const PanelKernels*> int4PanelKernels() {
#if defined(__x86_64__)
  CHORUS_ISA_TABLE_AND(const PanelKernels*, int4Kernels, {Isa::kAvx512Bf16, int4DotKernels()});
#else
  CHORUS_ISA_TABLE(const PanelKernels*, int4Kernels);
#endif
}
}  // namespace chorus
#endif
