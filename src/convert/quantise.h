// Weight-only quantisation by round to nearest: the tensors of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "checkpoint/weight_table.h"
#include "formats/source_tensors.h"

namespace chorus {

// Makes the rank's part of a quantised tensor. The sinks receive pieces of the integers, in the form of the file, and
// of the scales as (byte offset, bytes). If rows are cut over ranks, the scale is that of the whole row, so that the
// ranks together hold what a single rank would hold. Throws Error(kInvalidArgument) that names the source tensor if it
// has a value that is not finite.
void quantiseRankTensor(const RankTensor& integers, const Mapping& mapping, int32_t rank, const SourceTensors& sources,
                        SourceFormat format,
                        const std::function<void(uint64_t, std::span<const std::byte>)>& integer_sink,
                        const std::function<void(uint64_t, std::span<const std::byte>)>& scale_sink);

}  // namespace chorus
