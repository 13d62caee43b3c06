#include "convert/sources/jax_arrays.h"

#include <algorithm>

#include "base/error.h"

namespace chorus {
namespace {

// Adds the rows and columns of a matrix [rows, cols] in row-major order that a part of it has, from element `begin` on.
void addMatrixPart(SourceTensor& tensor, const TensorView& part, int64_t begin, int64_t cols, bool transposed) {
  const int64_t count = part.elements();
  for (int64_t done = 0; done < count;) {
    const int64_t row = (begin + done) / cols, col = (begin + done) % cols;
    // The end of a row, some whole rows, or the beginning of a row.
    const int64_t width = std::min(cols - col, count - done);
    const int64_t height = col == 0 && count - done >= cols ? (count - done) / cols : 1;
    if (transposed) {
      tensor.addStrided(part, {.begin = done, .rows = width, .cols = height, .row_step = 1, .col_step = cols}, col,
                        row);
    } else {
      tensor.addStrided(part, {.begin = done, .rows = height, .cols = width, .row_step = cols, .col_step = 1}, row,
                        col);
    }
    done += width * height;
  }
}

constexpr std::string_view kParams = "params/";

// Number of levels of "params" at the beginning of a name.
size_t paramsLevels(std::string_view name) {
  size_t levels = 0;
  for (; name.starts_with(kParams); name.remove_prefix(kParams.size())) ++levels;
  return levels;
}

}  // namespace

void keepParameters(std::vector<JaxArray>& arrays) {
  const bool slashes =
      std::ranges::any_of(arrays, [](const JaxArray& array) { return array.name.find('/') != std::string::npos; });
  if (!slashes) {
    for (JaxArray& array : arrays) std::ranges::replace(array.name, '.', '/');
  }
  // All levels at once: a name may have thousands of them.
  size_t most = 0;
  for (const JaxArray& array : arrays) most = std::max(most, paramsLevels(array.name));
  std::erase_if(arrays, [&](const JaxArray& array) { return paramsLevels(array.name) < most; });
  for (JaxArray& array : arrays) array.name.erase(0, most * kParams.size());
}

std::vector<int64_t> stridesOf(const JaxArray& array) {
  std::vector<int64_t> strides(array.shape.size());
  if (std::ranges::find(array.shape, 0) != array.shape.end()) return strides;  // products of the others may overflow
  int64_t step = 1;
  for (size_t i = 0; i < strides.size(); ++i) {
    const size_t dimension = array.fortran_order ? i : strides.size() - 1 - i;
    strides[dimension] = step;
    step *= array.shape[dimension];
  }
  return strides;
}

SourceTensor tensorOf(const JaxArray& array, bool transposed) {
  std::vector<int64_t> shape = array.shape;
  if (transposed) std::ranges::reverse(shape);
  SourceTensor tensor(shape);
  if (array.shape.size() == 2 && array.shape[1] > 0) {
    // A matrix in Fortran order is the transpose of one in row-major order.
    const int64_t cols = array.fortran_order ? array.shape[0] : array.shape[1];
    int64_t begin = 0;
    for (const TensorView& part : array.parts) {
      addMatrixPart(tensor, part, begin, cols, transposed != array.fortran_order);
      begin += part.elements();
    }
  } else {
    if (array.fortran_order && array.shape.size() > 2) {
      fail(ErrorCode::kUnsupported, "{}: '{}' is in Fortran order; save it with numpy.ascontiguousarray", array.file,
           array.name);
    }
    int64_t begin = 0;
    for (const TensorView& part : array.parts) {
      tensor.addRange(part, 0, part.elements(), begin);
      begin += part.elements();
    }
  }
  tensor.finish(array.name);
  return tensor;
}

void addFlaxArrays(const std::vector<JaxArray>& arrays, const AddJaxTensor& add) {
  for (const JaxArray& array : arrays) {
    std::string name = array.name;
    std::ranges::replace(name, '/', '.');
    const size_t leaf = name.rfind('.') + 1;  // 0 if there is no '.'
    const std::string last = name.substr(leaf);
    const bool kernel = last == "kernel";
    if (kernel || last == "scale" || last == "embedding") name.replace(leaf, std::string::npos, "weight");
    add(name, tensorOf(array, kernel && array.shape.size() == 2), array.file);
  }
}

}  // namespace chorus
