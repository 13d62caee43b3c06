// The formats that have panel kernels; each is compiled in a file of its own.
#pragma once

#include "kernels/cpu/isa_table.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {

IsaTable<const PanelKernels*> f32PanelKernels();
IsaTable<const PanelKernels*> f16PanelKernels();
IsaTable<const PanelKernels*> bf16PanelKernels();
// With float inputs: for the weights of float32 models and for int8 adapters of any model.
IsaTable<const PanelKernels*> int8PanelKernels();
IsaTable<const PanelKernels*> int4PanelKernels();
// With fixed-point inputs (FixedForm, PerTokenForm), for models of 16-bit types.
IsaTable<const PanelKernels*> int8FixedPanelKernels(const WeightFormat& format);
IsaTable<const PanelKernels*> int4FixedPanelKernels(const WeightFormat& format);
#if defined(__x86_64__)
// Isa::kAvx512Vnni
const PanelKernels* int8VnniKernels(const WeightFormat& format);
const PanelKernels* int4VnniKernels(const WeightFormat& format);
// Isa::kAvx512Bf16
const PanelKernels* bf16DotKernels();
// Isa::kAmx
const PanelKernels* bf16TileKernels();
// Isa::kAmxInt8
const PanelKernels* int8TileKernels(const WeightFormat& format);
const PanelKernels* int4TileKernels(const WeightFormat& format);
#endif

}  // namespace chorus
