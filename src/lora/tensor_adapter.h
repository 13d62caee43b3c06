// Reads adapters from the two tensors of an Executor request.
#pragma once

#include <memory>
#include <string>

#include "formats/tensor_file.h"
#include "lora/adapter.h"
#include "lora/peft_reader.h"

namespace chorus {

//   weights  [rows, longest] or [1, rows, longest], float32, float16 or bfloat16. A row is flat and padded on the
//   right:
//            A [rank, in], B [out, rank] and, for DoRA, the normalised magnitude [out].
//   config   int32 [rows, 3 or 4] or [1, rows, 3 or 4]. A row is module id, global layer, rank and is_dora. Rows may be
//            in any order.
//   owner    keeps both tensors alive; the adapter shares it.
// Throws Error(kInvalidArgument) with TensorRT-LLM's texts.
Adapter readTensorAdapter(const TensorView& weights, const TensorView& config, std::shared_ptr<const void> owner,
                          std::string name, const AdapterTarget& target);

}  // namespace chorus
