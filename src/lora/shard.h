// Cuts an adapter into the shard that one rank needs: the layers of its pipeline stage; for column-parallel linears the
// whole A and the rank's output rows of B; for row-parallel linears the rank's input columns of A and the whole B.
// Replacement weights are cut like the base's weights.
#pragma once

#include "checkpoint/weight_table.h"
#include "lora/adapter.h"

namespace chorus {

class BackgroundThrottle;

// The share of one tensor-parallel rank in a vocabulary of `vocab` tokens: [begin, begin + count). The last ranks may
// have fewer tokens.
struct TokenRange {
  int64_t begin = 0;
  int64_t count = 0;
};
TokenRange tokenShare(int64_t vocab, int32_t tp_size, int32_t tp_rank);

// `adapter` is whole (unsharded); `config` and `table` are those it was read against, and config.mapping is the mapping
// to shard for. Modules keep global layer ids; their `in` and `out` are the rank's. Magnitudes and biases follow B's
// rows; the bias of a linear that is cut along its inputs goes to rank 0. A module is left out when all its outputs are
// on other ranks. With one rank the result shares the adapter's memory. throttle: is charged for copied bytes; may be
// null.
//   weights         row_begin counts in the rank's tensor; norms' weights and biases are whole on every rank
//   embedding       on the first stage: whole; or, when the table is cut along the vocabulary, the rank's share of the
//                   tokens that the adapter takes, with row_begin its first token; or the rank's columns
//   output head     on the last stage: the rank's share of the model's tokens, padded with zeros, then all tokens that
//                   the adapter adds
//   trained tokens  embedding_tokens are placed like the embedding; head_tokens are numbered by row of the rank's head
Adapter shardAdapter(const Adapter& adapter, const ModelConfig& config, const WeightTable& table, int32_t rank,
                     BackgroundThrottle* throttle = nullptr);

}  // namespace chorus
