// Joins the parameters that ZeRO cuts over data-parallel ranks, by the rules of DeepSpeed's zero_to_fp32.py.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/deepspeed_states.h"
#include "formats/source_tensor.h"

namespace chorus {

// add(name, tensor) is called for each joined parameter. The tensors point into the memory of the states.
using AddSourceTensor = std::function<void(const std::string& name, SourceTensor tensor)>;

// Stages 1 and 2. Each group's parameters are flattened one after the other, and rank r has the r-th part of the
// result. shapes: of the parameters of each group. optimizers: by rank. where: the checkpoint in errors. Throws
// Error(kCorrupt) if the sizes do not fit together.
void joinZero2(std::span<const std::vector<NamedShape>> shapes, std::span<const DeepSpeedStates> optimizers,
               std::string_view where, const AddSourceTensor& add);

// Stage 3. Each parameter is padded to a multiple of the ranks and cut into as many equal parts; rank r has the r-th
// part of every parameter, one after the other in the order of `shapes`, across the borders of its flat tensors.
void joinZero3(std::span<const std::vector<NamedShape>> shapes, std::span<const DeepSpeedStates> optimizers,
               std::string_view where, const AddSourceTensor& add);

// Stage 3: the parameters that are not trained, cut in the same way, each rank's part by its name. models: by rank.
void joinFrozenZero3(std::span<const DeepSpeedStates> models, std::string_view where, const AddSourceTensor& add);

}  // namespace chorus
