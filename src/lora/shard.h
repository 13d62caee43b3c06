// The part of an adapter that one rank needs (spec S2): layers of its pipeline stage; in column-parallel linears B is
// cut along its output rows and A is whole, in row-parallel ones A is cut along its inputs and B is whole.
#pragma once

#include "checkpoint/weight_table.h"
#include "lora/adapter.h"

namespace chorus {

// adapter is whole; config and table are those it was read against, with the mapping to cut for. Modules keep global
// layer ids and name their rank's in and out. Magnitudes follow B's rows. A rank's part of a module whose outputs
// stand on other ranks alone is left out. With one rank the adapter's memory is shared.
Adapter shardAdapter(const Adapter& adapter, const ModelConfig& config, const WeightTable& table, int32_t rank);

}  // namespace chorus
