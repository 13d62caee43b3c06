// Joins the shards of a NeMo model's ranks to tensors with the names and shapes of the checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "formats/nemo_layout.h"
#include "formats/source_tensors.h"
#include "formats/tensor_file.h"

namespace chorus {

// The checkpoints of all ranks, in the order of NemoLayout::checkpoints.
struct NemoShards {
  NemoLayout layout;
  std::string config_source;  // of model_config.yaml, for errors
  std::vector<TensorFile> shards;
};

// Rows of the embedding on all ranks together. Megatron pads them, so there may be more than tokens. Throws Error.
int64_t paddedVocabulary(const NemoShards& shards, const ModelConfig& config);

// The name of a table row's source among the joined tensors; with experts, one tensor for each expert.
std::string joinedName(const WeightRow& row);

// Adds the tensors (joinedName) of all rows of `table`, which is that of the finalised config, to `out`. Their values
// are those of the shards: layernorm1p's norms are one less than the checkpoint's. The memory of the shards must
// outlive `out`. Throws Error that names the tensor that is missing, has another shape, or is none of the model.
void joinNemoShards(const NemoShards& shards, const ModelConfig& config, const WeightTable& table, SourceTensors& out);

}  // namespace chorus
