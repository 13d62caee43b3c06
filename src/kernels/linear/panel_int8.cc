#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_int8.cc"
#include <hwy/foreach_target.h>

#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const PanelKernels* int8Kernels() { return quantisedKernels<8>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const PanelKernels*> int8PanelKernels() { CHORUS_ISA_TABLE(const PanelKernels*, int8Kernels); }
}  // namespace chorus
#endif
