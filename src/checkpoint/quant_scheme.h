// How one weight is stored in a checkpoint: its format, and the tensors of a rank's file that hold it, by role.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/tensor.h"

namespace chorus {

// What a tensor of a rank's file holds of its weight: all of it, or only the integers or the scales of a quantised one.
enum class TensorRole { kValues, kIntegers, kScales };

struct StoredTensor {
  TensorRole role = TensorRole::kValues;
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
};

// The scheme of a tensor that is not quantised has its dtype as format.
struct QuantScheme {
  WeightFormat format;

  // The tensors that hold a weight, in file order: its values, or integers and then scales. name, shape: of the weight
  // when it is not quantised; a quantised one is [out, in] or [experts, out, in]. Throws Error(kUnsupported) that names
  // the weight if it cannot be quantised in this way: int4 packs pairs of rows, and groups must divide the inputs.
  std::vector<StoredTensor> tensors(const std::string& name, const std::vector<int64_t>& shape) const;
};

}  // namespace chorus
