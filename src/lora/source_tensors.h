// Adapters as the Executor's requests carry them: two tensors (spec S2).
#pragma once

#include <memory>
#include <string>

#include "formats/tensor_file.h"
#include "lora/adapter.h"
#include "lora/source_peft.h"

namespace chorus {

// weights: [rows, longest] or [1, rows, longest], float32, float16 or bfloat16; a row is A [rank, in], B [out, rank]
// and, for DoRA, the normalised magnitude [out], flat, padded on the right. config: int32 [.., 3 or 4], a row being
// module id, global layer, rank, is_dora. Rows stand in any order. owner keeps both alive; the adapter shares it.
// Throws Error(kInvalidArgument) with TensorRT-LLM's texts.
Adapter readTensorAdapter(const TensorView& weights, const TensorView& config, std::shared_ptr<const void> owner,
                          std::string name, const AdapterTarget& target);

}  // namespace chorus
