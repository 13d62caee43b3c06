// Copies one rank's part of a tensor from its sources, in pieces that bound memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "checkpoint/shard.h"
#include "checkpoint/weight_table.h"
#include "formats/source_tensors.h"

namespace chorus {

// float32, float16, bfloat16 and float64.
bool isConvertible(DType dtype);

// Rows [row, row + rows) of a source tensor, or of its transpose if the transform asks for that; or `rows` rows of
// zeros.
struct SourceRun {
  const SourceTensor* tensor = nullptr;  // null: zeros. Of a tensor of all experts: one expert's, valid in the call
  SourceTransform transform;
  std::string name;  // for error lines
  int64_t row = 0;
  int64_t rows = 0;
};
// Calls fn for consecutive pieces of a run. Pages of a mapped source are dropped from memory after every few megabytes,
// so that the memory of a conversion does not grow with the model's size.
void inBoundedPieces(const SourceRun& run, const std::function<void(const SourceRun&)>& fn);
// Drops the pages of all sources of the rank's tensor.
void dropSourcePages(const RankTensor& tensor, const SourceTensors& sources, SourceFormat format);

// Calls fn for each run of source rows in the rank's tensor, in order: the rows of slice, for one expert after the
// other if there are experts. The tensor's sources of this format must be present with the table's shapes.
void forEachSourceRun(const RankTensor& tensor, const TensorSlice& slice, const SourceTensors& sources,
                      SourceFormat format, const std::function<void(const SourceRun&)>& fn);

// Rows and columns of what a rank's tensor holds of its table row, for one expert: those of the row, or half the rows
// if they are pairs of int4 rows, or those of the scales.
struct Extent {
  int64_t rows = 0;
  int64_t cols = 0;
};
Extent storedExtent(const RankTensor& tensor);
// `slice`, which is in rows and columns of the table row, in those of storedExtent. Throws Error(kUnsupported) that
// names the tensor if it would separate the rows of an int4 pair.
TensorSlice storedSlice(const RankTensor& tensor, TensorSlice slice);
// The name of the part in a source that stores it: `weight`, or the name of its scales.
std::string storedName(const RankTensor& tensor, const std::string& weight);

// Calls sink(byte offset, bytes) for pieces of the rank's tensor, which are transformed and converted to its dtype
// (rounded to nearest even). The source of integers or scales holds the same integers or scales. Its sources of this
// format must be present with the table's shapes and convertible dtypes. Throws Error(kInvalidArgument) that names the
// source tensor when a finite value becomes infinite in float16, and the Errors of storedSlice.
void copyRankTensor(const RankTensor& tensor, const Mapping& mapping, int32_t rank, const SourceTensors& sources,
                    SourceFormat format, const std::function<void(uint64_t, std::span<const std::byte>)>& sink);

}  // namespace chorus
