// PEFT directory -> the two tensors that an Executor request carries (spec S2), as .npy files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/dtype.h"

namespace chorus {

inline constexpr const char* kLoraConfigFile = "model.lora_config.npy";
inline constexpr const char* kLoraWeightsFile = "model.lora_weights.npy";

struct LoraConversion {
  int64_t rows = 0;          // modules times layers
  int64_t longest = 0;       // values of a row
  bool lacks_norms = false;  // a DoRA adapter that does not say that its magnitudes are normalised (dora_normalize.h)
};

// Writes into output_dir, which appears whole or not at all and may be an earlier result:
//   model.lora_config.npy   int32 [1, rows, 4]: module id, layer, rank, whether a magnitude follows
//   model.lora_weights.npy  storage [1, rows, longest]: A [rank, in], B [out, rank] * scale, magnitude [out] as it
//                           stands in the adapter, flat, zeros to the right
// The scale is multiplied in float32 and rounded with B to `storage` (float32, float16 or bfloat16). Rows come layer by
// layer, layers and modules as they first appear in the weight file. The experts of a layer are one row, A
// [experts, rank, in] and B [experts, out, rank]. Needs no base model: ids and layers follow from names
// (convert/lora_places.h). Memory: one row. Throws Error with one line that names what cannot be expressed in this
// form, contradicts itself, or is beyond storage's range.
LoraConversion convertLora(const std::filesystem::path& adapter_dir, const std::filesystem::path& output_dir,
                           DType storage);

}  // namespace chorus
