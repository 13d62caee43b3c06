// The part of an adapter that one rank needs (spec S2): layers of its pipeline stage; in column-parallel linears B is
// cut along its output rows and A is whole, in row-parallel ones A is cut along its inputs and B is whole. What stands
// for the base's weights is cut as these are.
#pragma once

#include "checkpoint/weight_table.h"
#include "lora/adapter.h"

namespace chorus {

// Tokens [begin, begin + count) of a vocabulary of `vocab` are one tensor-parallel rank's; the last ranks' may be fewer.
struct TokenRange {
  int64_t begin = 0;
  int64_t count = 0;
};
TokenRange tokenShare(int64_t vocab, int32_t tp_size, int32_t tp_rank);

// adapter is whole; config and table are those it was read against, with the mapping to cut for. Modules keep global
// layer ids and name their rank's in and out. Magnitudes and biases follow B's rows; biases of a linear that is cut along
// its inputs are rank 0's. A rank's part of a module whose outputs stand on other ranks alone is left out. With one rank
// the adapter's memory is shared.
//   weights            row_begin is of the rank's tensor
//   embedding          on the first stage: whole, or (a table cut along the vocabulary) the rank's share of the tokens
//                      that the adapter takes, row_begin its first one, or columns of it
//   output head        on the last stage: the rank's share of the model's tokens, filled up with zeros, and then all that
//                      the adapter adds
//   trained tokens     embedding_tokens likewise; head_tokens by their feature of that head
Adapter shardAdapter(const Adapter& adapter, const ModelConfig& config, const WeightTable& table, int32_t rank);

}  // namespace chorus
