#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_f16.cc"
#include <hwy/foreach_target.h>
#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const PanelKernels* f16Kernels() { return formatKernels<Float16Panels>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const PanelKernels*> f16PanelKernels() { CHORUS_ISA_TABLE(const PanelKernels*, f16Kernels); }
}  // namespace chorus
#endif
