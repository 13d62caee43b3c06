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
template <class Form>
const PanelKernels* int8FixedKernels() {
  return fixedKernels<8, Form>();
}
#if HWY_ARCH_ARM_A64
template <class Form>
const PanelKernels* int8DotKernels() {
  return fixedDotKernels<8, Form>();
}
#endif
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const PanelKernels*> int8PanelKernels() { CHORUS_ISA_TABLE(const PanelKernels*, int8Kernels); }

IsaTable<const PanelKernels*> int8FixedPanelKernels(const WeightFormat& weights) {
  return withInt8Form(weights, []<class Form>(Form) -> IsaTable<const PanelKernels*> {
#if defined(__x86_64__)
    const WeightFormat format = formatOf<Form>(DType::kInt8);
    CHORUS_ISA_TABLE_AND(const PanelKernels*, int8FixedKernels<Form>, {Isa::kAvx512Vnni, int8VnniKernels(format)},
                         {Isa::kAmxInt8, int8TileKernels(format)});
#elif HWY_ARCH_ARM_A64
    CHORUS_ISA_TABLE_AND(const PanelKernels*, int8FixedKernels<Form>,
                         {Isa::kNeonDot, HWY_STATIC_DISPATCH(int8DotKernels<Form>)()});
#else
    CHORUS_ISA_TABLE(const PanelKernels*, int8FixedKernels<Form>);
#endif
  });
}
}  // namespace chorus
#endif
