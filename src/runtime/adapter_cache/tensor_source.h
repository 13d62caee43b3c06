// An adapter that comes with a request as tensors (executor::LoraConfig).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/dtype.h"
#include "chorus/request.h"
#include "kernels/weight_packer.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Upper bound of the memory in bytes that one row of the weights tensor takes once it is packed. The row has `width`
// elements: A [rank, in], B [out, rank] and, with DoRA, a magnitude [out], for an unknown `in` and `out`.
using PackedRowBytes = std::function<int64_t(int64_t rank, int64_t width, bool dora)>;
// The bound for an engine of this type and number of tensor-parallel ranks, each of which holds the whole of A or of B.
PackedRowBytes packedRowBytes(const WeightPacker& packer, const WeightFormat& format, int32_t tp_size);

// Returns null if the LoraConfig is only a task id. The tensors are not checked here: whatever they hold, the sizes of
// the source are upper bounds of what the loaded adapter takes.
std::shared_ptr<const AdapterSource> tensorSource(const executor::LoraConfig& lora, const PackedRowBytes& row_bytes);

}  // namespace chorus
