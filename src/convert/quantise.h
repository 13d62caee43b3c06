// Weight-only quantisation by round to nearest: the formulas, and the tensors of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "checkpoint/weight_table.h"
#include "formats/tensor_source.h"

namespace chorus {

// Quantises one row of `in` finite weights. For each group of inputs (format.group; 0: the whole row), amax being the
// largest magnitude in it:
//   scale   = amax / 2^(bits - 1), or with groups amax / (2^(bits - 1) - 1), as TensorRT-LLM's W8A16 and W4A16 and
//             ModelOpt's groups have it, rounded to format.scale_dtype; 1 where all weights are zero
//   integer = weight / scale, rounded to nearest even and clamped to [-2^(bits - 1), 2^(bits - 1) - 1]
// integers: [in]; scales: [in / group], or one.
void quantiseRow(const float* weights, int64_t in, const WeightFormat& format, int8_t* integers, float* scales);

// The rank's part of a quantised tensor: integers in the file's form and scales, each to its sink as (byte offset,
// bytes). The whole row makes the scale of a row that is cut over ranks, so that the ranks together hold what one would
// alone. Throws Error(kInvalidArgument) that names the source tensor when it holds a value that is not finite.
void quantiseRankTensor(const RankTensor& integers, const Mapping& mapping, int32_t rank, const TensorSource& sources,
                        const std::function<void(uint64_t, std::span<const std::byte>)>& integer_sink,
                        const std::function<void(uint64_t, std::span<const std::byte>)>& scale_sink);

}  // namespace chorus
