// The formats that have panel kernels; each is compiled in a file of its own.
#pragma once

#include "kernels/linear/panel_kernels.h"

namespace chorus {

const PanelKernels* f32PanelKernels(Isa isa);
const PanelKernels* f16PanelKernels(Isa isa);
const PanelKernels* bf16PanelKernels(Isa isa);

}  // namespace chorus
