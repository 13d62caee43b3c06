#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/linear/panel_quantised_vnni-inl.h"

CHORUS_BEGIN_VNNI_CODE
namespace chorus {
const PanelKernels* int8VnniKernels(const WeightFormat& format) {
  return vnni::quantisedKernels<vnni::Int8Lanes>(format);
}
}  // namespace chorus
CHORUS_END_VNNI_CODE
#endif
