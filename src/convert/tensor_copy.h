// Copies one rank's part of a tensor from its sources, in pieces that bound memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "checkpoint/shard.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_source.h"

namespace chorus {

// float32, float16, bfloat16 and float64.
bool isConvertible(DType dtype);

// Calls fn(source, its name, first row, rows) for the runs of source rows that the rank's tensor consists of, in order;
// source is null for rows of zeros. The sources are present with the table's shapes.
void forEachSourceRun(const RankTensor& tensor, const TensorSlice& slice, const TensorSource& sources,
                      const std::function<void(const TensorView*, const std::string&, int64_t, int64_t)>& fn);

// Calls sink(byte offset, bytes) over the rank's tensor, converted to its dtype (rounded to nearest even). The
// sources are present with the table's shapes and convertible dtypes. Throws Error(kInvalidArgument) that names the
// source tensor when a finite value becomes infinite in float16.
void copyRankTensor(const RankTensor& tensor, const Mapping& mapping, int32_t rank, const TensorSource& sources,
                    const std::function<void(uint64_t, std::span<const std::byte>)>& sink);

}  // namespace chorus
