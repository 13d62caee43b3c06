// Names that tools give to the same module. The weight table of a model has some of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_table.h"

namespace chorus {

// The name that the table has for a module of a layer, which may be spelled as another tool does ("attn.output_proj" of
// torchtune, "mlp.experts.3.gate_proj" for "block_sparse_moe.experts.3.w1"). Returns `name` if the table has none of
// its spellings.
std::string nameInTable(std::string_view name, const WeightTable& table, int32_t layer);

// The name in the table of one expert's module, with "{expert}" for its id, if mlx-lm stacks this module of all experts
// as `name`: "mlp.experts.{expert}.gate_proj" for "mlp.switch_mlp.gate_proj". Empty if it does not.
std::string stackedModuleOf(std::string_view name, const WeightTable& table, int32_t layer);

// Whether the name, compared withoutModelNames(), is one that models usually give to the embedding or to the output
// head.
bool isOutsideLayers(std::string_view name);

// Whether both are names of the embedding, or both of the output head, outside layers.
bool areSpellings(std::string_view name, std::string_view other);

}  // namespace chorus
