#include "lora/adapter_values.h"

#include <cstring>
#include <memory>

#include "base/background_throttle.h"
#include "base/checked.h"
#include "base/error.h"

namespace chorus {
namespace {

constexpr std::string_view kOtherModel = "the adapter is of another model or rank";

// Memory for the values of a converted tensor.
std::shared_ptr<std::vector<std::byte>> memoryFor(const TensorView& tensor, AdapterBuilder& builder) {
  auto memory = std::make_shared<std::vector<std::byte>>(tensor.bytes.size());
  builder.keep(memory);
  return memory;
}

// The row of torchtune's order that has row `row` of Hugging Face's. head_rows is even.
int64_t pairedRow(int64_t row, int64_t head_rows) {
  const int64_t in_head = row % head_rows, half = head_rows / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

// The rows of a matrix or vector in Hugging Face's order.
TensorView withoutPairs(const TensorView& rows, int64_t head_rows, AdapterBuilder& builder) {
  if (builder.takesShapesOnly()) return rows;
  const auto memory = memoryFor(rows, builder);
  const size_t row_bytes = rows.bytes.size() / static_cast<size_t>(rows.shape[0]);
  inPieces(rows.shape[0], row_bytes, builder.throttle(), [&](int64_t begin, int64_t count) {
    for (int64_t row = begin; row < begin + count; ++row) {
      std::memcpy(memory->data() + static_cast<size_t>(row) * row_bytes,
                  rows.bytes.data() + static_cast<size_t>(pairedRow(row, head_rows)) * row_bytes, row_bytes);
    }
  });
  return {rows.dtype, rows.shape, *memory};
}
}  // namespace

const TensorView& checkedTensor(const TensorFile& weights, const std::string& name, const std::vector<int64_t>& shape,
                                std::string_view hint, BackgroundThrottle* throttle) {
  const TensorView& tensor = *weights.find(name);
  const auto refuse = [&](std::string_view reason) {
    fail(ErrorCode::kCorrupt, "{}: tensor '{}' {}", weights.source(), name, reason);
  };
  if (tensor.shape != shape) {
    refuse(fmt::format("has shape {}, expected {}; {}", shapeText(tensor.shape), shapeText(shape), hint));
  }
  if (!isAdapterDType(tensor.dtype)) {
    refuse(fmt::format("is {}; float32, float16, bfloat16 and float64 are read", dtypeName(tensor.dtype)));
  }
  if (weights.hasValues() && !allFinite(tensor.bytes, tensor.dtype, throttle))
    refuse("holds values that are not finite; train or save it again");
  return tensor;
}

LowRank lowRankOf(const TensorFile& weights, const std::string& a, const std::string& b, const LowRankShape& shape,
                  const ValuesForm& form, AdapterBuilder& builder) {
  if (form.form == AdapterForm::kMlx) {
    const TensorView& of_a = checkedTensor(weights, a, {shape.in, shape.rank}, kOtherModel, builder.throttle());
    const TensorView& of_b = checkedTensor(weights, b, {shape.rank, shape.out}, kOtherModel, builder.throttle());
    return {transposed(of_a, builder), transposed(of_b, builder)};
  }
  const TensorView& of_a = checkedTensor(weights, a, {shape.rank, shape.in}, kOtherModel, builder.throttle());
  const TensorView& of_b = checkedTensor(weights, b, {shape.out, shape.rank}, kOtherModel, builder.throttle());
  return {of_a, form.head_rows > 0 ? withoutPairs(of_b, form.head_rows, builder) : of_b};
}

std::vector<LowRank> lowRankOfExperts(const TensorFile& weights, const std::string& a, const std::string& b,
                                      const LowRankShape& shape, int64_t experts, BackgroundThrottle* throttle) {
  const auto rows = static_cast<int64_t>(
      checkedMul(static_cast<uint64_t>(shape.rank), static_cast<uint64_t>(experts), "the rank of all experts"));
  const bool is_flat = weights.find(a)->shape.size() == 2;
  const std::vector<int64_t> a_shape =
      is_flat ? std::vector<int64_t>{rows, shape.in} : std::vector<int64_t>{experts, shape.rank, shape.in};
  const TensorView& all_a = checkedTensor(weights, a, a_shape, kOtherModel, throttle);
  const TensorView& all_b = checkedTensor(weights, b, {experts, shape.out, shape.rank}, kOtherModel, throttle);
  std::vector<LowRank> matrices;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto ofExpert = [&](const TensorView& all, std::vector<int64_t> own) -> TensorView {
      const size_t bytes = all.bytes.size() / static_cast<size_t>(experts);
      return {all.dtype, std::move(own), all.bytes.subspan(static_cast<size_t>(expert) * bytes, bytes)};
    };
    matrices.push_back({ofExpert(all_a, {shape.rank, shape.in}), ofExpert(all_b, {shape.out, shape.rank})});
  }
  return matrices;
}

std::vector<float> vectorOf(const TensorFile& weights, const std::string& name, int64_t count, const ValuesForm& form,
                            AdapterBuilder& builder) {
  std::vector<int64_t> shape = weights.find(name)->shape;
  if (shape != std::vector<int64_t>{count, 1} && shape != std::vector<int64_t>{1, count}) shape = {count};
  TensorView values = checkedTensor(weights, name, shape, kOtherModel, builder.throttle());
  values.shape = {count};
  return toFloats(form.head_rows > 0 ? withoutPairs(values, form.head_rows, builder) : values, builder.throttle());
}

bool sameValues(const TensorView& one, const TensorView& other, AdapterBuilder& builder) {
  if (one.dtype != other.dtype || one.shape != other.shape) return false;
  // Tensors of a PyTorch file may share their values.
  if (builder.takesShapesOnly() || one.bytes.data() == other.bytes.data()) return true;
  builder.charge(one.bytes.size());
  bool same = true;
  inPieces(std::ssize(one.bytes), 1, builder.throttle(), [&](int64_t begin, int64_t count) {
    same = same && std::memcmp(one.bytes.data() + begin, other.bytes.data() + begin, static_cast<size_t>(count)) == 0;
  });
  return same;
}

TensorView transposed(const TensorView& matrix, AdapterBuilder& builder) {
  const size_t size = dtypeSize(matrix.dtype);
  const auto rows = static_cast<size_t>(matrix.shape[0]);
  const auto columns = static_cast<size_t>(matrix.shape[1]);
  TensorView result = {matrix.dtype, {matrix.shape[1], matrix.shape[0]}, matrix.bytes};
  if (builder.takesShapesOnly()) return result;
  const auto memory = memoryFor(matrix, builder);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      std::memcpy(memory->data() + (c * rows + r) * size, matrix.bytes.data() + (r * columns + c) * size, size);
    }
    chargeThrottle(builder.throttle(), columns * size);
  }
  result.bytes = *memory;
  return result;
}

TensorView everyNthColumn(const TensorView& matrix, int64_t n, int64_t first, AdapterBuilder& builder) {
  const size_t size = dtypeSize(matrix.dtype);
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const size_t bytes = static_cast<size_t>(rows * (columns / n)) * size;
  TensorView result = {matrix.dtype, {rows, columns / n}, matrix.bytes.first(bytes)};
  if (builder.takesShapesOnly()) return result;
  const auto memory = memoryFor(result, builder);
  std::byte* to = memory->data();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = first; c < columns; c += n, to += size) {
      std::memcpy(to, matrix.bytes.data() + static_cast<size_t>(r * columns + c) * size, size);
    }
    chargeThrottle(builder.throttle(), static_cast<size_t>(columns / n) * size);
  }
  result.bytes = *memory;
  return result;
}

bool isUntrained(const TensorFile& weights) {
  bool any = false;
  for (const std::string& name : weights.names()) {
    const auto key = parsePeftKey(name);
    if (!key) return false;
    const TensorView& tensor = *weights.find(name);
    const bool is_b = key->part == PeftPart::kB || key->part == PeftPart::kEmbeddingB;
    const bool adds_nothing = key->part == PeftPart::kA || key->part == PeftPart::kEmbeddingA ||
                              (key->wrapped && key->tensor != "bias") || key->part == PeftPart::kLeftOut;
    if (adds_nothing) continue;
    if (!is_b || !isAdapterDType(tensor.dtype) || !allZero(tensor.bytes, tensor.dtype)) return false;
    any = true;
  }
  return any;
}

}  // namespace chorus
