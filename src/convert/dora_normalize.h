// Divides DoRA's magnitudes by the row norms of the base model's weights, so that a server does not need these weights.
// TensorRT-LLM requires this before an adapter's tensors are submitted.
#pragma once

#include <cstdint>
#include <filesystem>

namespace chorus {

struct DoraNormalisation {
  int64_t modules = 0;
  bool used_dora = false;  // false: a LoRA adapter, which is written unchanged
};

// Writes the adapter of adapter_dir to output_dir as a PEFT directory with normalised magnitudes.
//   - A magnitude vector becomes m / ||W + scale B A|| in float32, with the norm over each output row. W is the tensor
//     of base_dir with the module's name. kNormalisedField in adapter_config.json marks the result.
//   - strip: writes no magnitude vectors, so that the result is a plain LoRA adapter.
//   - A and B are copied.
//   - output_dir appears only when it is complete; an earlier result there is replaced.
//   - Norms are summed in double precision over float32 terms, as in the engine.
//   - Memory: A and B of one module; files are mapped.
// Throws Error with one line that names the tensor if it is missing, has another shape or type, or has a row without a
// norm.
DoraNormalisation normaliseDora(const std::filesystem::path& adapter_dir, const std::filesystem::path& base_dir,
                                const std::filesystem::path& output_dir, bool strip);

}  // namespace chorus
