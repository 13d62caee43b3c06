#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/products_f16.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const AttentionProducts* f16Products() { return attention::formatProducts<Float16Panels>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const AttentionProducts*> f16AttentionProducts() { CHORUS_ISA_TABLE(const AttentionProducts*, f16Products); }
}  // namespace chorus
#endif
