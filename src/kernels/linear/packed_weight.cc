// Packing a row-major weight into panels and reading it back.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/background_throttle.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/packed_quantised.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

// Number of units of each row that are moved at a time, so that reads and writes both stay in L1.
constexpr int64_t kUnitsAtOnce = 64;

// Copies units [begin, end) of a row into a panel's column.
template <typename Unit>
void packRow(const std::byte* row, int64_t begin, int64_t end, Unit* column) {
  for (int64_t i = begin; i < end; ++i) {
    std::memcpy(column + i * kPanelCols, row + i * static_cast<int64_t>(sizeof(Unit)), sizeof(Unit));
  }
}

// Like packRow() for all rows of a panel, but it transposes squares of 4 x 4 units in registers.
template <typename Unit>
void packBlock(const std::byte* rows, int64_t row_bytes, int64_t begin, int64_t end, Unit* panel) {
  using Quad [[gnu::vector_size(4 * sizeof(Unit))]] = Unit;
  const int64_t squares_end = begin + (end - begin) / 4 * 4;
  for (int64_t c = 0; c < kPanelCols; c += 4) {
    const std::byte* source = rows + c * row_bytes;
    for (int64_t i = begin; i < squares_end; i += 4) {
      Quad in[4];
      for (int64_t k = 0; k < 4; ++k) {
        std::memcpy(&in[k], source + k * row_bytes + i * static_cast<int64_t>(sizeof(Unit)), sizeof(Quad));
      }
      const Quad low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
      const Quad high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
      const Quad low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
      const Quad high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
      const Quad out[4] = {
          __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
          __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int64_t k = 0; k < 4; ++k) std::memcpy(panel + (i + k) * kPanelCols + c, &out[k], sizeof(Quad));
    }
    for (int64_t k = 0; k < 4; ++k) packRow(source + k * row_bytes, squares_end, end, panel + c + k);
  }
}

// Packs rows of row_bytes bytes. A Unit is one input, or an input pair for bfloat16; unit i of column c is at index i *
// kPanelCols + c of its panel. The last unit of a row may be half full.
template <typename Unit>
void packUnits(const std::byte* rows, int64_t num_rows, int64_t row_bytes, int64_t row_begin, Unit* dst,
               BackgroundThrottle* throttle) {
  const auto whole = row_bytes / static_cast<int64_t>(sizeof(Unit));
  const auto left = row_bytes % static_cast<int64_t>(sizeof(Unit));
  const int64_t units = whole + (left > 0);
  for (int64_t r = 0; r < num_rows;) {
    const int64_t column = (row_begin + r) % kPanelCols;
    const int64_t count = std::min(num_rows - r, kPanelCols - column);
    Unit* panel = dst + (row_begin + r) / kPanelCols * kPanelCols * units + column;
    for (int64_t i0 = 0; i0 < units; i0 += kUnitsAtOnce) {
      const int64_t i1 = std::min(whole, i0 + kUnitsAtOnce);
      if (count == kPanelCols) {
        packBlock(rows + r * row_bytes, row_bytes, i0, i1, panel);
      } else {
        for (int64_t c = 0; c < count; ++c) packRow(rows + (r + c) * row_bytes, i0, i1, panel + c);
      }
      if (left > 0 && i0 + kUnitsAtOnce >= units) {
        for (int64_t c = 0; c < count; ++c) {
          Unit last = 0;
          std::memcpy(&last, rows + (r + c + 1) * row_bytes - left, static_cast<size_t>(left));
          panel[whole * kPanelCols + c] = last;
        }
      }
      chargeThrottle(throttle, static_cast<size_t>(count * kUnitsAtOnce) * sizeof(Unit));
    }
    r += count;
    if (r == num_rows && column + count < kPanelCols) {
      for (int64_t i = 0; i < units; ++i) {
        std::fill(panel + i * kPanelCols + count, panel + (i + 1) * kPanelCols - column, Unit{0});
      }
    }
  }
}

// Reads `count` elements of a panel's column.
template <typename T>
void unpackColumn(const T* column, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = toFloat(column[i * kPanelCols]);
}
}  // namespace

void packRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin, void* dst,
              BackgroundThrottle* throttle) {
  assert(num_rows >= 0 && in >= 0 && row_begin >= 0);
  const DType dtype = format.dtype;
  if (isQuantised(dtype)) return packQuantisedRows(rows, format, num_rows, in, row_begin, dst);
  const auto* bytes = static_cast<const std::byte*>(rows);
  const int64_t row_bytes = in * static_cast<int64_t>(dtypeSize(dtype));
  if (dtype == DType::kFloat16) {
    packUnits(bytes, num_rows, row_bytes, row_begin, static_cast<uint16_t*>(dst), throttle);
  } else {
    assert(dtype == DType::kFloat32 || dtype == DType::kBFloat16);
    packUnits(bytes, num_rows, row_bytes, row_begin, static_cast<uint32_t*>(dst), throttle);
  }
}

void unpackRow(const PackedWeight& weight, int64_t row, float* out) {
  assert(row >= 0 && row < weight.out);
  if (isQuantised(weight.dtype)) return unpackQuantisedRow(weight, row, out);
  if (weight.in == 0) return;  // the weight may have no data
  const auto* panel =
      static_cast<const std::byte*>(weight.data) + row / kPanelCols * panelBytes(weight.dtype, weight.in);
  const int64_t column = row % kPanelCols;
  switch (weight.dtype) {
    case DType::kBFloat16: {
      const auto* pairs = reinterpret_cast<const bf16*>(panel) + 2 * column;
      for (int64_t i = 0; i < weight.in; ++i) out[i] = toFloat(pairs[i / 2 * 2 * kPanelCols + i % 2]);
      return;
    }
    case DType::kFloat16:
      return unpackColumn(reinterpret_cast<const f16*>(panel) + column, weight.in, out);
    case DType::kFloat32:
      return unpackColumn(reinterpret_cast<const float*>(panel) + column, weight.in, out);
    default:
      assert(false);
  }
}

}  // namespace chorus
