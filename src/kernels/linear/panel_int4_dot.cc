#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/linear/panel_quantised_dot-inl.h"

CHORUS_BEGIN_DOT_CODE
namespace chorus {
const PanelKernels* int4DotKernels() { return dot::quantisedKernels<dot::Int4Lanes>(); }
}  // namespace chorus
CHORUS_END_DOT_CODE
#endif
