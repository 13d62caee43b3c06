// The storage of one weight in a checkpoint: its format, and the tensors of a rank's file that hold it, by role.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/tensor.h"

namespace chorus {

// A weight that is not quantised is stored as one tensor (kValues), a quantised weight as two tensors.
enum class TensorRole { kValues, kIntegers, kScales };

struct StoredTensor {
  TensorRole role = TensorRole::kValues;
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
};

// Describes how a checkpoint stores weights of one format. The format of a weight that is not quantised is its dtype.
struct QuantScheme {
  WeightFormat format;

  // Returns the tensors that hold a weight, in file order: its values, or its integers and then its scales. name and
  // shape are those that the weight has without quantisation. A quantised weight must be [out, in] or
  // [experts, out, in]. Throws Error(kUnsupported) that names the weight if it cannot be quantised in this way: int4
  // packs pairs of rows, and groups must divide the inputs.
  std::vector<StoredTensor> tensors(const std::string& name, const std::vector<int64_t>& shape) const;
};

}  // namespace chorus
