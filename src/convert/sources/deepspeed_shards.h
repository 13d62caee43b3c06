// State dicts of DeepSpeed that are cut by layers of a pipeline or over tensor-parallel ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/source_names.h"
#include "formats/deepspeed_states.h"
#include "formats/source_tensor.h"

namespace chorus {

// A tensor that a Hugging Face model must have.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool fused = false;  // several linears are parts of it, so that tensor-parallel ranks may have parts of each
};
// The model's tensor of this name; nullopt if it has none.
std::optional<ExpectedTensor> expectedTensor(const SourceNames& names, const std::string& name);

// Joins one tensor of all tensor-parallel ranks: the first one if every rank has it whole, else along the one dimension
// in which the shapes differ from the expected one. shards: by rank. Throws Error(kCorrupt) if they do not fit
// together, kUnsupported for a cut tensor that is fused.
SourceTensor joinShards(std::span<const TensorView* const> shards, const ExpectedTensor& expected,
                        std::string_view where);

// The tensors of one layer of a pipeline: their names in the layer, and each one's shards by tensor-parallel rank.
using PipelineLayer = std::vector<std::pair<std::string, std::vector<const TensorView*>>>;

// Finds out which tensors of the model those of a pipeline's layers are, and calls add for each.
//   - A layer is the model's next decoder layer if it has all names of one, alone or behind a common prefix.
//   - Tensors of the layers before them are the model's tensors of its first stage, and those behind them of its last
//     one, in the order of the weight table, found by the end of the name and by the shape.
// names: of the model's tensors. tied: a second table of token embeddings behind the layers is left out, because the
// model's output head is the first one. Throws Error(kCorrupt) that names the layer and the tensor if a tensor is of no
// use.
void readPipeline(const std::map<int32_t, PipelineLayer>& layers, const SourceNames& names, bool tied,
                  std::string_view where, const std::function<void(const std::string&, SourceTensor)>& add);

}  // namespace chorus
