#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/linear/panel_quantised_vnni-inl.h"

CHORUS_BEGIN_VNNI_CODE
namespace chorus {
const PanelKernels* int4VnniKernels(int64_t run) { return vnni::quantisedKernels<vnni::Int4Lanes>(run); }
}  // namespace chorus
CHORUS_END_VNNI_CODE
#endif
