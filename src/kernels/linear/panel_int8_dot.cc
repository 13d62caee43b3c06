#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include "kernels/linear/panel_quantised_dot-inl.h"

CHORUS_BEGIN_DOT_CODE
namespace chorus {
const PanelKernels* int8DotKernels() { return dot::quantisedKernels<dot::Int8Lanes>(); }
}  // namespace chorus
CHORUS_END_DOT_CODE
#endif
