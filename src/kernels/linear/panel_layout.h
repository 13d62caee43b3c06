// The form in which the CPU keeps the weight [out, in] of a linear: panels of kPanelCols output features. Panel p holds
// features [16p, 16p + 16) for all inputs. Features past `out` and inputs past `in` are zero. Position of element (o,
// i) in its panel:
//   - float32, float16: [i][o % 16].
//   - bfloat16: [i / 2][o % 16][i % 2], so that one 32-bit lane holds an input pair, which AMX and dot products need.
//   - int8, int4: the panel is a sequence of scale groups. A group is 16 scales (zero for features past `out`), then
//     32-bit lanes [i / 4][o % 16] (int8) or [i / 8][o % 16] (int4), where i counts from the start of the group. An
//     input is stored as integer + 128 (int8) or integer + 8 (int4) in the bits of its lane from packedBit(dtype, i)
//     on. One mask, one OR and one subtraction turn it into a float. If a feature has only one scale, the scale is
//     repeated every kScaleRun inputs. InputFormat::kInt8PerToken: it is not repeated, and the 16 scales begin a cache
//     line of their own, so that AMX loads whole lines.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace chorus {

inline constexpr int64_t kPanelCols = 16;
// Inputs per packed scale if a feature has only one scale, unless inputs are kInt8PerToken. A multiple of every group
// size; products are split only at multiples of it.
inline constexpr int64_t kScaleRun = 1024;

// In place of a number of inputs: all inputs of a row.
inline constexpr int64_t kWholeRow = int64_t{1} << 40;

// Number of inputs that share one run of 16 packed scales, and the size of such a run in bytes.
inline int64_t packedGroup(const WeightFormat& format) {
  if (format.activations == InputFormat::kInt8PerToken) return kWholeRow;
  return format.group > 0 ? format.group : kScaleRun;
}
inline constexpr int64_t kTokenScaleBytes = 64;  // with kInt8PerToken
inline int64_t scaleRunBytes(const WeightFormat& format) {
  if (format.activations == InputFormat::kInt8PerToken) return kTokenScaleBytes;
  return kPanelCols * static_cast<int64_t>(dtypeSize(format.scale_dtype));
}
// Inputs in one 32-bit lane of a quantised format.
inline int64_t inputsPerLane(DType dtype) { return dtype == DType::kInt4 ? 8 : 4; }

// Lowest bit of input i in its 32-bit lane. int4: even inputs are in the lower half and odd inputs in the upper half,
// so that a lane shifted right by 0, 4, 8 or 12 bits has an input pair in the lowest bits of its two halves.
constexpr int packedBit(DType dtype, int64_t i) {
  return static_cast<int>(dtype == DType::kInt4 ? i % 2 * 16 + i % 8 / 2 * 4 : i % 4 * 8);
}

// Size in bytes of the first `in` inputs of a panel, and of a whole packed weight. In panelBytes, `in` is the number of
// all inputs or a position at which a product may be split: a multiple of the group, or of 2 for a float format.
inline int64_t panelBytes(const WeightFormat& format, int64_t in) {
  if (isQuantised(format.dtype)) {
    const int64_t group = packedGroup(format), lane = inputsPerLane(format.dtype);
    return (in + group - 1) / group * scaleRunBytes(format) + (in + lane - 1) / lane * 64;
  }
  return format.dtype == DType::kBFloat16 ? (in + 1) / 2 * 64
                                          : in * kPanelCols * static_cast<int64_t>(dtypeSize(format.dtype));
}
inline int64_t packedBytes(const WeightFormat& format, int64_t out, int64_t in) {
  return (out + kPanelCols - 1) / kPanelCols * panelBytes(format, in);
}

// Weights of equal format and size, one for each expert, lie one after the other at this distance in bytes, a multiple
// of 64.
inline int64_t expertStride(const WeightFormat& format, int64_t out, int64_t in) {
  return (packedBytes(format, out, in) + 63) / 64 * 64;
}
// The weight of an expert. first: the weight of expert 0.
inline PackedWeight expertOf(const PackedWeight& first, int64_t expert) {
  PackedWeight own = first;
  own.data = static_cast<const char*>(first.data) +
             static_cast<size_t>(expert * expertStride(first.format(), first.out, first.in));
  return own;
}

// The functions of WeightPacker (kernels/weight_packer.h) for this form. Calls of packRows may run at the same time if
// each begins at a multiple of kPanelCols. packRows also sets the features after the given rows to zero in the last
// panel.
void packRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin, void* dst,
              BackgroundThrottle* throttle = nullptr);
void packScales(const void* scales, DType from, const WeightFormat& format, int64_t num_rows, int64_t in,
                int64_t row_begin, void* dst);
void unpackRow(const PackedWeight& weight, int64_t row, float* out);

}  // namespace chorus
