// The formats that have panel kernels; each is compiled in a file of its own.
#pragma once

#include "kernels/cpu/isa_table.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {

IsaTable<const PanelKernels*> f32PanelKernels();
IsaTable<const PanelKernels*> f16PanelKernels();
IsaTable<const PanelKernels*> bf16PanelKernels();
IsaTable<const PanelKernels*> int8PanelKernels();
IsaTable<const PanelKernels*> int4PanelKernels();
#if defined(__x86_64__)
// Isa::kAvx512Bf16
const PanelKernels* bf16DotKernels();
const PanelKernels* int8DotKernels();
const PanelKernels* int4DotKernels();
// Isa::kAmx
const PanelKernels* bf16TileKernels();
#endif

}  // namespace chorus
