#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_int8.cc"
#include <hwy/foreach_target.h>

#include "kernels/linear/fixed_point.h"
#include "kernels/linear/panel_fixed-inl.h"
#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const PanelKernels* int8Kernels() { return quantisedKernels<8>(); }
template <int kRun>
const PanelKernels* int8FixedKernels() {
  return fixedKernels<8, kRun>();
}
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
template <int kRun>
IsaTable<const PanelKernels*> ofRun() {
#if defined(__x86_64__)
  CHORUS_ISA_TABLE_AND(const PanelKernels*, int8FixedKernels<kRun>, {Isa::kAvx512Vnni, int8VnniKernels(kRun)},
                       {Isa::kAmx, int8TileKernels(kRun)});
#else
  CHORUS_ISA_TABLE(const PanelKernels*, int8FixedKernels<kRun>);
#endif
}
}  // namespace

IsaTable<const PanelKernels*> int8PanelKernels() { CHORUS_ISA_TABLE(const PanelKernels*, int8Kernels); }
IsaTable<const PanelKernels*> int8FixedPanelKernels(int64_t run) {
  return run == 32 ? ofRun<32>() : run == 64 ? ofRun<64>() : ofRun<kFixedRun>();
}
}  // namespace chorus
#endif
