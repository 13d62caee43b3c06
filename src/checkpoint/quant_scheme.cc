#include "checkpoint/quant_scheme.h"

#include <utility>

#include "base/error.h"
#include "checkpoint/names.h"

namespace chorus {

std::vector<StoredTensor> QuantScheme::tensors(const std::string& name, const std::vector<int64_t>& shape) const {
  if (!isQuantised(format.dtype)) return {{TensorRole::kValues, name, shape, format.dtype}};
  const size_t rows = shape.size() - 2;
  const int64_t out = shape[rows], in = shape.back();
  if (format.dtype == DType::kInt4 && out % 2 != 0) {
    fail(ErrorCode::kUnsupported,
         "{}: {} rows on a rank cannot be int4, which packs them in pairs; exclude it or use int8", name, out);
  }
  if (format.group > 0 && in % format.group != 0) {
    fail(ErrorCode::kUnsupported, "{}: group size {} does not divide the {} inputs of a rank", name, format.group, in);
  }
  StoredTensor integers = {TensorRole::kIntegers, name, shape, DType::kInt8};
  if (format.dtype == DType::kInt4) integers.shape[rows] /= 2;
  StoredTensor scales = {TensorRole::kScales, scaleName(name, format.group > 0), shape, format.scale_dtype};
  scales.shape.pop_back();
  if (format.group > 0) scales.shape.push_back(in / format.group);
  return {std::move(integers), std::move(scales)};
}

}  // namespace chorus
