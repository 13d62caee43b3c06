// The formats that have panel kernels; each is compiled in a file of its own.
#pragma once

#include "kernels/cpu/isa_table.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {

IsaTable<const PanelKernels*> f32PanelKernels();
IsaTable<const PanelKernels*> f16PanelKernels();
IsaTable<const PanelKernels*> bf16PanelKernels();
#if defined(__x86_64__)
const PanelKernels* bf16DotKernels();   // Isa::kAvx512Bf16
const PanelKernels* bf16TileKernels();  // Isa::kAmx
#endif

}  // namespace chorus
