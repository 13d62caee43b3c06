// Reads one file of a DeepSpeed training checkpoint, as data. Sources of the format: deepspeed/runtime/engine.py,
// deepspeed/runtime/zero/ and deepspeed/utils/zero_to_fp32.py.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/tensor_file.h"

namespace chorus {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

// The views point into the parsed bytes or into `copies`.
struct DeepSpeedStates {
  using NamedTensors = std::vector<std::pair<std::string, TensorView>>;

  // --- *_model_states.pt
  // The module's state dict; empty if the file has none, as with pipeline parallelism. With ZeRO stage 3 a parameter
  // that is cut over the ranks has no elements here, and only buffers are whole.
  NamedTensors module;
  std::vector<std::string> buffer_names;
  // The parameters of each group of the optimizer, in the order of its partitions.
  std::vector<std::vector<NamedShape>> param_shapes;
  // Parameters that are not trained. `fragments` has them whole, or with stage 3 this rank's part.
  std::vector<NamedShape> frozen_shapes;
  NamedTensors frozen_fragments;
  // Pairs of a parameter that is not stored and the one that it shares its values with.
  std::vector<std::pair<std::string, std::string>> shared_params;

  // --- *_optim_states.pt
  int64_t zero_stage = 0;       // 0: not said
  int64_t partition_count = 0;  // ranks that the partitions are cut over; 0: not said
  // This rank's part of the flattened float32 parameters of each group, of shape [elements].
  std::vector<TensorView> partitions;

  std::shared_ptr<const void> copies;  // tensors that were not contiguous in the file
};

// Parses a file that the caller keeps alive; source names it in errors. Objects of optimizers, schedulers and the like
// are skipped and never built. Throws the Errors of TorchFile::open, and Error(kCorrupt) that names the field if one
// has an unexpected type.
DeepSpeedStates parseDeepSpeedStates(std::span<const std::byte> bytes, std::string_view source);

}  // namespace chorus
