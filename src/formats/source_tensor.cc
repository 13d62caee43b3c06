#include "formats/source_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "base/checked.h"

namespace chorus {
namespace {

// Rows and columns of a shape as a matrix.
std::pair<int64_t, int64_t> matrixOf(std::span<const int64_t> shape) {
  const uint64_t elements = checkedElementCount(shape, "tensor");
  if (elements > static_cast<uint64_t>(INT64_MAX)) fail(ErrorCode::kCorrupt, "tensor: size overflows");
  const int64_t cols = shape.size() < 2 ? 1 : shape.back();
  return {cols == 0 ? 0 : static_cast<int64_t>(elements) / cols, cols};
}

bool isFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64;
}

// True if [begin, begin + count) is inside [0, size).
bool isInside(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && begin <= size && count <= size - begin;
}

Rectangle overlapOf(const Rectangle& a, const Rectangle& b) {
  const int64_t row = std::max(a.row, b.row), col = std::max(a.col, b.col);
  return {row, col, std::min(a.row + a.rows, b.row + b.rows) - row, std::min(a.col + a.cols, b.col + b.cols) - col};
}

// Copies or converts `count` adjacent elements. Neither side needs to be aligned.
void copyElements(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, size_t count) {
  const size_t from_size = dtypeSize(from_dtype), to_size = dtypeSize(to_dtype);
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, count * from_size);
    return;
  }
  constexpr size_t kRun = 512;
  std::array<uint64_t, kRun> source, converted;
  while (count > 0) {
    const size_t run = std::min(count, kRun);
    std::memcpy(source.data(), from, run * from_size);
    convertElements(source.data(), from_dtype, converted.data(), to_dtype, run);
    std::memcpy(to, converted.data(), run * to_size);
    from += run * from_size;
    to += run * to_size;
    count -= run;
  }
}

// Copies `count` adjacent elements to places that are `step` bytes apart.
template <size_t kSize>
void scatter(const std::byte* from, std::byte* to, size_t step, size_t count) {
  for (size_t i = 0; i < count; ++i) std::memcpy(to + i * step, from + i * kSize, kSize);
}

void scatterElements(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, size_t step,
                     size_t count) {
  if (step == dtypeSize(to_dtype)) return copyElements(from, from_dtype, to, to_dtype, count);
  if (from_dtype == to_dtype && dtypeSize(to_dtype) == 2) return scatter<2>(from, to, step, count);
  if (from_dtype == to_dtype && dtypeSize(to_dtype) == 4) return scatter<4>(from, to, step, count);
  const size_t from_size = dtypeSize(from_dtype);
  for (size_t i = 0; i < count; ++i) copyElements(from + i * from_size, from_dtype, to + i * step, to_dtype, 1);
}

// Elements that are `row` and `col` bytes apart.
struct Steps {
  size_t row;
  size_t col;
};

void copyMatrix(const std::byte* from, DType from_dtype, Steps from_steps, std::byte* to, DType to_dtype,
                Steps to_steps, size_t rows, size_t cols) {
  const size_t from_size = dtypeSize(from_dtype);
  // The rows are the dimension in which the elements lie farther apart, so that reading is mostly consecutive.
  if (from_steps.row < from_steps.col) {
    std::swap(rows, cols);
    from_steps = {from_steps.col, from_steps.row};
    to_steps = {to_steps.col, to_steps.row};
  }
  if (from_steps.col == from_size && from_dtype == to_dtype && to_steps.col == from_size &&
      from_steps.row == cols * from_size && to_steps.row == from_steps.row) {
    std::memcpy(to, from, rows * from_steps.row);
    return;
  }
  for (size_t r = 0; r < rows; ++r, from += from_steps.row, to += to_steps.row) {
    if (from_steps.col == from_size) {
      scatterElements(from, from_dtype, to, to_dtype, to_steps.col, cols);
      continue;
    }
    for (size_t c = 0; c < cols; ++c) {
      copyElements(from + c * from_steps.col, from_dtype, to + c * to_steps.col, to_dtype, 1);
    }
  }
}
}  // namespace

SourceTensor::SourceTensor(const TensorView& stored) : SourceTensor(stored.shape) {
  dtype_ = stored.dtype;
  if (rows_ == 0) return;
  addWhole(stored, 0);
  orderPieces();
}

SourceTensor::SourceTensor(std::vector<int64_t> shape) : shape_(std::move(shape)) {
  std::tie(rows_, cols_) = matrixOf(shape_);
}

void SourceTensor::addPiece(const Rectangle& place, DType dtype, const std::byte* data, size_t row_bytes,
                            size_t col_bytes) {
  if (place.rows == 0 || place.cols == 0) return;
  pieces_.push_back({.place = place, .dtype = dtype, .data = data, .row_bytes = row_bytes, .col_bytes = col_bytes});
}

void SourceTensor::addRectangle(const TensorView& stored, const Rectangle& part, int64_t row, int64_t col) {
  const auto [rows, cols] = matrixOf(stored.shape);
  if (!isInside(part.row, part.rows, rows) || !isInside(part.col, part.cols, cols) ||
      !isInside(row, part.rows, rows_) || !isInside(col, part.cols, cols_)) {
    fail(ErrorCode::kCorrupt, "a piece of shape {} does not fit into a tensor of shape {}", shapeText(stored.shape),
         shapeText(shape_));
  }
  const size_t size = dtypeSize(stored.dtype), row_bytes = static_cast<size_t>(cols) * size;
  addPiece({row, col, part.rows, part.cols}, stored.dtype,
           stored.bytes.data() + static_cast<size_t>(part.row) * row_bytes + static_cast<size_t>(part.col) * size,
           row_bytes, size);
}

void SourceTensor::addWhole(const TensorView& stored, int64_t row, int64_t col) {
  const auto [rows, cols] = matrixOf(stored.shape);
  addRectangle(stored, {0, 0, rows, cols}, row, col);
}

void SourceTensor::addRange(const TensorView& stored, int64_t begin, int64_t count, int64_t first) {
  if (!isInside(begin, count, stored.elements()) || !isInside(first, count, rows_ * cols_)) {
    fail(ErrorCode::kCorrupt, "a range of {} elements does not fit into a tensor of shape {}", count,
         shapeText(shape_));
  }
  // The range is the end of a row, some whole rows, and the beginning of a row.
  const size_t size = dtypeSize(stored.dtype);
  const std::byte* data = stored.bytes.data() + static_cast<size_t>(begin) * size;
  while (count > 0) {
    const int64_t row = first / cols_, col = first % cols_;
    Rectangle place = {row, col, 1, std::min(count, cols_ - col)};
    if (col == 0 && count >= cols_) place.rows = count / cols_;
    addPiece(place, stored.dtype, data, static_cast<size_t>(place.cols) * size, size);
    const int64_t taken = place.rows * place.cols;
    data += static_cast<size_t>(taken) * size;
    first += taken;
    count -= taken;
  }
}

void SourceTensor::addStrided(const TensorView& stored, const StridedMatrix& part, int64_t row, int64_t col) {
  if (part.rows == 0 || part.cols == 0) return;
  const auto distance = [](int64_t count, int64_t step) {
    return checkedMul(static_cast<uint64_t>(count - 1), static_cast<uint64_t>(step), "tensor");
  };
  if (part.begin < 0 || part.row_step < 0 || part.col_step < 0 || !isInside(row, part.rows, rows_) ||
      !isInside(col, part.cols, cols_) ||
      checkedAdd(static_cast<uint64_t>(part.begin),
                 checkedAdd(distance(part.rows, part.row_step), distance(part.cols, part.col_step), "tensor"),
                 "tensor") >= static_cast<uint64_t>(stored.elements())) {
    fail(ErrorCode::kCorrupt, "a piece of shape {} does not fit into a tensor of shape {}", shapeText(stored.shape),
         shapeText(shape_));
  }
  const size_t size = dtypeSize(stored.dtype);
  addPiece({row, col, part.rows, part.cols}, stored.dtype, stored.bytes.data() + static_cast<size_t>(part.begin) * size,
           static_cast<size_t>(part.row_step) * size, static_cast<size_t>(part.col_step) * size);
}

void SourceTensor::orderPieces() {
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.place.row < b.place.row; });
  ends_until_.clear();
  for (const Piece& piece : pieces_) {
    const int64_t end = piece.place.row + piece.place.rows;
    ends_until_.push_back(ends_until_.empty() ? end : std::max(ends_until_.back(), end));
  }
}

void SourceTensor::finish(std::string_view name) {
  orderPieces();
  checkCovered(name);
  if (pieces_.empty()) return;
  dtype_ = pieces_.front().dtype;
  const auto differs = [&](const Piece& piece) { return piece.dtype != dtype_; };
  if (std::ranges::none_of(pieces_, differs)) return;
  for (const Piece& piece : pieces_) {
    if (isFloat(piece.dtype)) continue;
    fail(ErrorCode::kUnsupported, "tensor '{}': its pieces are {} and other types", name, dtypeName(piece.dtype));
  }
  dtype_ = DType::kFloat32;
}

// Walks over the rows and keeps the column ranges of the pieces that have the current row.
void SourceTensor::checkCovered(std::string_view name) const {
  std::vector<size_t> by_end(pieces_.size());
  for (size_t i = 0; i < by_end.size(); ++i) by_end[i] = i;
  const auto endOf = [&](size_t i) { return pieces_[i].place.row + pieces_[i].place.rows; };
  std::ranges::sort(by_end, {}, endOf);
  std::map<int64_t, int64_t> columns;  // begin -> end
  size_t ended = 0;
  uint64_t covered = 0;
  for (const Piece& piece : pieces_) {
    const Rectangle& place = piece.place;
    for (; ended < by_end.size() && endOf(by_end[ended]) <= place.row; ++ended) {
      columns.erase(pieces_[by_end[ended]].place.col);
    }
    const auto next = columns.lower_bound(place.col);
    if ((next != columns.end() && next->first < place.col + place.cols) ||
        (next != columns.begin() && std::prev(next)->second > place.col)) {
      fail(ErrorCode::kCorrupt, "tensor '{}': row {} is in several pieces", name, place.row);
    }
    columns.emplace_hint(next, place.col, place.col + place.cols);
    covered += static_cast<uint64_t>(place.rows) * static_cast<uint64_t>(place.cols);
  }
  const uint64_t all = static_cast<uint64_t>(rows_) * static_cast<uint64_t>(cols_);
  if (covered != all) {
    fail(ErrorCode::kCorrupt, "tensor '{}': its pieces hold {} of the {} elements of shape {}", name, covered, all,
         shapeText(shape_));
  }
}

template <typename F>
void SourceTensor::forEachOverlap(const Rectangle& part, F&& fn) const {
  assert(pieces_.size() == ends_until_.size());
  auto i = static_cast<size_t>(std::ranges::upper_bound(ends_until_, part.row) - ends_until_.begin());
  for (; i < pieces_.size() && pieces_[i].place.row < part.row + part.rows; ++i) {
    const Rectangle overlap = overlapOf(pieces_[i].place, part);
    if (overlap.rows > 0 && overlap.cols > 0) fn(pieces_[i], overlap);
  }
}

void SourceTensor::readTo(const Rectangle& part, std::byte* out, size_t row_step, size_t col_step) const {
  forEachOverlap(part, [&](const Piece& piece, const Rectangle& overlap) {
    const std::byte* from = piece.data + static_cast<size_t>(overlap.row - piece.place.row) * piece.row_bytes +
                            static_cast<size_t>(overlap.col - piece.place.col) * piece.col_bytes;
    std::byte* to = out + static_cast<size_t>(overlap.row - part.row) * row_step +
                    static_cast<size_t>(overlap.col - part.col) * col_step;
    copyMatrix(from, piece.dtype, {piece.row_bytes, piece.col_bytes}, to, dtype_, {row_step, col_step},
               static_cast<size_t>(overlap.rows), static_cast<size_t>(overlap.cols));
  });
}

void SourceTensor::read(const Rectangle& part, std::byte* out) const {
  const size_t size = dtypeSize(dtype_);
  readTo(part, out, static_cast<size_t>(part.cols) * size, size);
}

void SourceTensor::readTransposed(const Rectangle& part, std::byte* out) const {
  const size_t size = dtypeSize(dtype_);
  readTo(part, out, size, static_cast<size_t>(part.rows) * size);
}

std::span<const std::byte> SourceTensor::storedRows(int64_t row, int64_t rows) const {
  std::span<const std::byte> found;
  const size_t row_bytes = static_cast<size_t>(cols_) * dtypeSize(dtype_);
  forEachOverlap({row, 0, rows, cols_}, [&](const Piece& piece, const Rectangle& overlap) {
    if (overlap.rows != rows || overlap.cols != cols_ || piece.dtype != dtype_) return;
    if (rows > 1 && piece.row_bytes != row_bytes) return;
    if (cols_ > 1 && piece.col_bytes != dtypeSize(dtype_)) return;
    found = {piece.data + static_cast<size_t>(row - piece.place.row) * piece.row_bytes,
             static_cast<size_t>(rows) * row_bytes};
  });
  return found;
}

SourceTensor SourceTensor::part(int64_t index) const {
  assert(shape_.size() >= 2 && index >= 0 && index < shape_[0]);
  SourceTensor result(std::vector<int64_t>(shape_.begin() + 1, shape_.end()));
  result.dtype_ = dtype_;
  const int64_t rows = rows_ / shape_[0];
  forEachOverlap({index * rows, 0, rows, cols_}, [&](Piece piece, const Rectangle& overlap) {
    piece.data += static_cast<size_t>(overlap.row - piece.place.row) * piece.row_bytes;
    piece.place = overlap;
    piece.place.row -= index * rows;
    if (result.cols_ != cols_) {  // a matrix's row becomes a vector, which is one column
      piece.place = {overlap.col, 0, overlap.cols, 1};
      piece.row_bytes = std::exchange(piece.col_bytes, dtypeSize(piece.dtype));
    }
    result.pieces_.push_back(piece);
  });
  result.orderPieces();
  return result;
}

void SourceTensor::markMapped(const std::function<bool(const std::byte*)>& isMapped) {
  for (Piece& piece : pieces_) piece.mapped = isMapped(piece.data);
}

void SourceTensor::dropPages(int64_t row, int64_t rows) const {
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  forEachOverlap({row, 0, rows, cols_}, [&](const Piece& piece, const Rectangle& overlap) {
    if (!piece.mapped) return;
    const std::byte* first = piece.data + static_cast<size_t>(overlap.row - piece.place.row) * piece.row_bytes;
    const std::byte* last = first + static_cast<size_t>(overlap.rows - 1) * piece.row_bytes +
                            static_cast<size_t>(piece.place.cols - 1) * piece.col_bytes + dtypeSize(piece.dtype);
    const uintptr_t begin = reinterpret_cast<uintptr_t>(first) / kPage * kPage;
    ::madvise(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(last) - begin, MADV_DONTNEED);
  });
}

}  // namespace chorus
