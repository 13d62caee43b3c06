#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_int4.cc"
#include <hwy/foreach_target.h>

#include "kernels/linear/fixed_point.h"
#include "kernels/linear/panel_fixed-inl.h"
#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const PanelKernels* int4Kernels() { return quantisedKernels<4>(); }
template <class Form>
const PanelKernels* int4FixedKernels() {
  return fixedKernels<4, Form>();
}
#if HWY_ARCH_ARM_A64
template <class Form>
const PanelKernels* int4DotKernels() {
  return fixedDotKernels<4, Form>();
}
#endif
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const PanelKernels*> int4PanelKernels() { CHORUS_ISA_TABLE(const PanelKernels*, int4Kernels); }

IsaTable<const PanelKernels*> int4FixedPanelKernels(const WeightFormat& weights) {
  return withFixedForm(weights, []<class Form>(Form) -> IsaTable<const PanelKernels*> {
#if defined(__x86_64__)
    const WeightFormat format = formatOf<Form>(DType::kInt4);
    CHORUS_ISA_TABLE_AND(const PanelKernels*, int4FixedKernels<Form>, {Isa::kAvx512Vnni, int4VnniKernels(format)},
                         {Isa::kAmxInt8, int4TileKernels(format)});
#elif HWY_ARCH_ARM_A64
    CHORUS_ISA_TABLE_AND(const PanelKernels*, int4FixedKernels<Form>,
                         {Isa::kNeonDot, HWY_STATIC_DISPATCH(int4DotKernels<Form>)()});
#else
    CHORUS_ISA_TABLE(const PanelKernels*, int4FixedKernels<Form>);
#endif
  });
}
}  // namespace chorus
#endif
