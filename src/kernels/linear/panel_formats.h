// The formats that have panel kernels; each is compiled in a file of its own.
#pragma once

#include "kernels/cpu/isa_table.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {

IsaTable<const PanelKernels*> f32PanelKernels();
IsaTable<const PanelKernels*> f16PanelKernels();
IsaTable<const PanelKernels*> bf16PanelKernels();
// With float inputs, for models of float32.
IsaTable<const PanelKernels*> int8PanelKernels();
IsaTable<const PanelKernels*> int4PanelKernels();
// With fixed-point inputs, for models of 16-bit types. run: fixedRun of the weights' format, 32, 64 or 128.
IsaTable<const PanelKernels*> int8FixedPanelKernels(int64_t run);
IsaTable<const PanelKernels*> int4FixedPanelKernels(int64_t run);
#if defined(__x86_64__)
// Isa::kAvx512Vnni
const PanelKernels* int8VnniKernels(int64_t run);
const PanelKernels* int4VnniKernels(int64_t run);
// Isa::kAvx512Bf16
const PanelKernels* bf16DotKernels();
// Isa::kAmx
const PanelKernels* bf16TileKernels();
const PanelKernels* int8TileKernels(int64_t run);
const PanelKernels* int4TileKernels(int64_t run);
#endif

}  // namespace chorus
