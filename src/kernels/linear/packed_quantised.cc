#include "kernels/linear/packed_quantised.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {
namespace {

// The bias added to every integer, repeated over a lane. It is also a lane whose integers are all zero.
uint32_t bias(DType dtype) { return dtype == DType::kInt4 ? 0x88888888u : 0x80808080u; }

// Packs `count` inputs at `bytes` into a lane. `half` selects the even row (0) or the odd row (1) of an int4 row pair.
uint32_t lane(const std::byte* bytes, int64_t count, DType dtype, int64_t half) {
  uint64_t all = 0;
  std::memcpy(&all, bytes, static_cast<size_t>(count));
  if (dtype == DType::kInt8) return static_cast<uint32_t>(all) ^ bias(dtype);
  all = (all >> (4 * half)) & 0x0f0f0f0f0f0f0f0full;
  // Gathers the lower nibble of every second byte into 16 bits.
  const auto gather = [](uint64_t bytes) {
    bytes &= 0x000f000f000f000full;
    bytes = (bytes | bytes >> 12) & 0x000000ff000000ffull;
    return static_cast<uint32_t>((bytes | bytes >> 24) & 0xffff);
  };
  return (gather(all) | gather(all >> 8) << 16) ^ bias(dtype);
}

// Offsets in a panel, for one format and number of inputs.
struct Layout {
  WeightFormat format;
  int64_t in;
  int64_t group = packedGroup(format);
  int64_t per_lane = inputsPerLane(format.dtype);
  int64_t groups = (in + group - 1) / group;

  std::byte* panel(void* data, int64_t feature) const {
    return static_cast<std::byte*>(data) + feature / kPanelCols * panelBytes(format, in);
  }
  int64_t scalesAt(int64_t g) const { return panelBytes(format, g * group); }
  // Offset of the lane that holds `input`, in the panel's column 0.
  int64_t laneAt(int64_t input) const {
    return scalesAt(input / group) + scaleRunBytes(format) + input % group / per_lane * 64;
  }
};

// Calls fn(first row, number of rows, first feature) for each run of rows in the same panel.
template <typename F>
void forEachPanel(int64_t num_rows, int64_t row_begin, F&& fn) {
  for (int64_t r = 0; r < num_rows;) {
    const int64_t feature = row_begin + r;
    const int64_t count = std::min(num_rows - r, kPanelCols - feature % kPanelCols);
    fn(r, count, feature);
    r += count;
  }
}

// First column of the panel after the last given row; kPanelCols if the panel is full or more rows follow.
int64_t emptyFrom(int64_t row, int64_t count, int64_t num_rows, int64_t feature) {
  return row + count == num_rows ? feature % kPanelCols + count : kPanelCols;
}
}  // namespace

void packQuantisedRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin,
                       void* dst) {
  const bool pairs = format.dtype == DType::kInt4;
  assert(!pairs || row_begin % 2 == 0);
  const Layout layout{format, in};
  forEachPanel(num_rows, row_begin, [&](int64_t row, int64_t count, int64_t feature) {
    std::byte* panel = layout.panel(dst, feature);
    const int64_t column = feature % kPanelCols, empty = emptyFrom(row, count, num_rows, feature);
    for (int64_t i = 0; i < in; i += layout.per_lane) {
      auto* lanes = reinterpret_cast<uint32_t*>(panel + layout.laneAt(i));
      const int64_t inputs = std::min(layout.per_lane, in - i);
      for (int64_t c = 0; c < count; ++c) {
        const int64_t r = row + c;
        const auto* source = static_cast<const std::byte*>(rows) + (pairs ? r / 2 : r) * in + i;
        lanes[column + c] = lane(source, inputs, format.dtype, pairs ? r % 2 : 0);
      }
      std::fill(lanes + empty, lanes + kPanelCols, bias(format.dtype));
    }
  });
}

void packScales(const void* scales, DType from, const WeightFormat& format, int64_t num_rows, int64_t in,
                int64_t row_begin, void* dst) {
  const Layout layout{format, in};
  const int64_t given = format.group > 0 ? layout.groups : 1;  // scales of a row
  const auto* source = static_cast<const std::byte*>(scales);
  const size_t from_size = dtypeSize(from), size = dtypeSize(format.scale_dtype);
  forEachPanel(num_rows, row_begin, [&](int64_t row, int64_t count, int64_t feature) {
    const int64_t column = feature % kPanelCols, empty = emptyFrom(row, count, num_rows, feature);
    for (int64_t g = 0; g < layout.groups; ++g) {
      std::byte* run = layout.panel(dst, feature) + layout.scalesAt(g);
      for (int64_t c = 0; c < count; ++c) {
        const auto at = static_cast<size_t>((row + c) * given + (given > 1 ? g : 0));
        convertElements(source + at * from_size, from, run + static_cast<size_t>(column + c) * size, format.scale_dtype,
                        1);
      }
      std::fill(run + static_cast<size_t>(empty) * size, run + static_cast<size_t>(kPanelCols) * size, std::byte{0});
    }
  });
}

void unpackQuantisedRow(const PackedWeight& weight, int64_t row, float* out) {
  const Layout layout{weight.format(), weight.in};
  const auto* panel =
      static_cast<const std::byte*>(weight.data) + row / kPanelCols * panelBytes(layout.format, weight.in);
  const auto column = static_cast<size_t>(row % kPanelCols);
  const int bits = weight.dtype == DType::kInt4 ? 4 : 8;
  for (int64_t i = 0; i < weight.in; ++i) {
    uint32_t lanes;
    std::memcpy(&lanes, panel + layout.laneAt(i) + column * sizeof lanes, sizeof lanes);
    const uint32_t biased = lanes >> packedBit(weight.dtype, i) & ((1u << bits) - 1);
    const float scale = loadAsFloat(panel + layout.scalesAt(i / layout.group), weight.scale_dtype, column);
    out[i] = static_cast<float>(static_cast<int>(biased) - (1 << (bits - 1))) * scale;
  }
}

}  // namespace chorus
