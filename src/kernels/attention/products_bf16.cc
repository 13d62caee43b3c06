#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/products_bf16.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {
const AttentionProducts* bf16Products() { return attention::formatProducts<Bfloat16Panels>(); }
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const AttentionProducts*> bf16AttentionProducts() {
#if defined(__x86_64__)
  CHORUS_ISA_TABLE_AND(const AttentionProducts*, bf16Products, {Isa::kAvx512Bf16, bf16DotAttentionProducts()},
                       {Isa::kAmx, bf16TileAttentionProducts()});
#else
  CHORUS_ISA_TABLE(const AttentionProducts*, bf16Products);
#endif
}
}  // namespace chorus
#endif
