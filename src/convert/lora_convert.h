// Converts an adapter to the two tensors of an adapter in an Executor request, as .npy files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/dtype.h"

namespace chorus {

inline constexpr const char* kLoraConfigFile = "model.lora_config.npy";
inline constexpr const char* kLoraWeightsFile = "model.lora_weights.npy";

struct LoraConversion {
  int64_t rows = 0;          // modules times layers
  int64_t longest = 0;       // values of the longest row
  bool lacks_norms = false;  // DoRA magnitudes are not marked as normalised (dora_normalize.h)
};

// Writes two files into output_dir, which appears only when it is complete. An earlier result there is replaced.
//   model.lora_config.npy   int32 [1, rows, 4]: module id, layer, rank, whether a magnitude follows
//   model.lora_weights.npy  storage [1, rows, longest]: A [rank, in], then B [out, rank] * scale, then the adapter's
//                           magnitude [out], all flattened and padded with zeros
//   - B is multiplied by the scale in float32 and then rounded to `storage` (float32, float16 or bfloat16).
//   - Rows are ordered by layer. Layers, and modules within a layer, are in the order of their first tensor in the
//     weight file.
//   - The experts of a layer are one row with A [experts, rank, in] and B [experts, out, rank].
//   - No base model is needed: ids and layers follow from names (convert/lora_places.h). The order of the rows of a
//   NeMo
//     adapter's fused linears follows from the model's config, which is part of its archive.
//   - Memory: one row.
// Throws Error with one line that names what this form cannot express, what contradicts itself, or what is out of the
// range of `storage`.
// adapter_path: a directory, or a .nemo file.
LoraConversion convertLora(const std::filesystem::path& adapter_path, const std::filesystem::path& output_dir,
                           DType storage);

}  // namespace chorus
