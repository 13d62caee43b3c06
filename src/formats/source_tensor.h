// A tensor of a model source that may be stored in pieces: as the tensor-parallel shards of a checkpoint, or as the
// ranges of a flattened tensor that data-parallel ranks keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/tensor_file.h"

namespace chorus {

// Rows [row, row + rows) and columns [col, col + cols) of a matrix.
struct Rectangle {
  int64_t row = 0;
  int64_t col = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

// The elements begin + r * row_step + c * col_step of a tensor, counted row by row, for r < rows and c < cols. A matrix
// [a, b] is transposed by rows = b, cols = a, row_step = 1, col_step = b.
struct StridedMatrix {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_step = 0;
  int64_t col_step = 0;
};

// A non-owning tensor that consists of pieces of stored tensors. All functions see it, and each stored tensor, as a
// matrix: the last dimension of [a, b, c] is its columns and the others are its a * b rows; a tensor of one dimension
// has one column, and a scalar is one row of one column. Reading is thread-safe.
class SourceTensor {
 public:
  SourceTensor() = default;
  // A tensor that one stored tensor holds whole. The conversion is implicit, so that functions for source tensors also
  // take stored ones.
  SourceTensor(const TensorView& stored);  // NOLINT(google-explicit-constructor)
  // A tensor without pieces. Throws Error(kCorrupt) if its size overflows.
  explicit SourceTensor(std::vector<int64_t> shape);

  // Adds the rectangle `part` of a stored tensor; its first element is the element (row, col) of this tensor. Throws
  // Error(kCorrupt) if the part is not inside both tensors.
  void addRectangle(const TensorView& stored, const Rectangle& part, int64_t row, int64_t col);
  // Adds a whole stored tensor: its rows become the rows from `row` on, and its columns those from `col` on.
  void addWhole(const TensorView& stored, int64_t row, int64_t col = 0);
  // Adds elements [begin, begin + count) of a stored tensor as elements [first, first + count) of this one. Both are
  // counted row by row. Throws Error(kCorrupt) if a range is not inside its tensor.
  void addRange(const TensorView& stored, int64_t begin, int64_t count, int64_t first);
  // Adds elements of a stored tensor as the rectangle whose first element is (row, col). Throws Error(kCorrupt) if they
  // are not inside both tensors.
  void addStrided(const TensorView& stored, const StridedMatrix& part, int64_t row, int64_t col);
  // Must be called after the last piece. Throws Error that names `name`: kCorrupt if the pieces overlap or do not cover
  // the tensor, kUnsupported if they have different dtypes and not all of these are floating-point types.
  void finish(std::string_view name);

  // The dtype of the pieces. If they differ it is float32, to which reading converts.
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // Copies a rectangle to out, [part.rows, part.cols] in dtype(). out may be unaligned.
  void read(const Rectangle& part, std::byte* out) const;
  // Copies the transpose of a rectangle to out, [part.cols, part.rows] in dtype(). out may be unaligned.
  void readTransposed(const Rectangle& part, std::byte* out) const;
  // The bytes of rows [row, row + rows) where they are stored, if they lie side by side there in dtype(); otherwise
  // empty.
  std::span<const std::byte> storedRows(int64_t row, int64_t rows) const;
  // Part `index` of the first of at least two dimensions, without that dimension. Shares the stored tensors.
  SourceTensor part(int64_t index) const;

  // Marks the pieces whose first byte lies in a mapped file, so that their pages may be dropped.
  void markMapped(const std::function<bool(const std::byte*)>& isMapped);
  // Removes the marked pieces of rows [row, row + rows) from the memory of this process. Reading them again brings them
  // back from the system's page cache.
  void dropPages(int64_t row, int64_t rows) const;

 private:
  struct Piece {
    Rectangle place;  // in this tensor
    DType dtype;
    const std::byte* data;  // element (place.row, place.col)
    size_t row_bytes;       // distance between rows
    size_t col_bytes;       // distance between columns
    bool mapped = false;
  };

  void addPiece(const Rectangle& place, DType dtype, const std::byte* data, size_t row_bytes, size_t col_bytes);
  void orderPieces();
  // Calls fn(piece, overlap in coordinates of this tensor) for each piece that overlaps the rectangle.
  template <typename F>
  void forEachOverlap(const Rectangle& part, F&& fn) const;
  void checkCovered(std::string_view name) const;
  // Copies element (r, c) of the rectangle to out + r * row_step + c * col_step bytes.
  void readTo(const Rectangle& part, std::byte* out, size_t row_step, size_t col_step) const;

  std::vector<int64_t> shape_;
  int64_t rows_ = 0, cols_ = 0;
  DType dtype_ = DType::kFloat32;
  std::vector<Piece> pieces_;        // ascending by place.row once they are ordered
  std::vector<int64_t> ends_until_;  // ends_until_[i]: the greatest end row of pieces 0 to i
};

}  // namespace chorus
