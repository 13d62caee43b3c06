// DoRA's magnitudes over the base model's row norms, so that a server need not know the base weights: what TensorRT-LLM
// asks of an adapter before its tensors are submitted (spec S2).
#pragma once

#include <cstdint>
#include <filesystem>

namespace chorus {

struct DoraNormalisation {
  int64_t modules = 0;
  bool used_dora = false;  // false: a LoRA adapter, written as it was
};

// Writes adapter_dir to output_dir as a PEFT directory whose magnitude vectors are m / ||W + scale B A||, the norm over
// each output row, in float32, and
// whose adapter_config.json says so (kNormalisedField); W is base_dir's tensor of the module's name. strip: without the
// vectors, a plain LoRA. A and B are copied. output_dir appears whole or not at all; an earlier result there is
// replaced. Norms are summed in double precision over float32 terms, as the engine does. Memory: A and B of one module;
// files are mapped. Throws Error with one line that names the tensor which is missing, of another shape or type, or
// whose row has no norm.
DoraNormalisation normaliseDora(const std::filesystem::path& adapter_dir, const std::filesystem::path& base_dir,
                                const std::filesystem::path& output_dir, bool strip);

}  // namespace chorus
