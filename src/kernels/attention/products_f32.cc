#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/products_f32.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const AttentionProducts* f32Products() { return attention::formatProducts<Float32Panels>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const AttentionProducts*> f32AttentionProducts() { CHORUS_ISA_TABLE(const AttentionProducts*, f32Products); }
}  // namespace chorus
#endif
