// Converts a model from any source (convert/sources/) to a checkpoint directory.
#pragma once

#include <filesystem>

#include "convert/convert_options.h"

namespace chorus {

// Converts the model at source_path, a directory or a file, to a checkpoint in output_dir.
//   - What the path holds decides how it is read (sourceReaderOf).
//   - output_dir appears only when it is complete. An earlier checkpoint there is replaced; other files are never
//     replaced.
//   - Values are rounded to nearest even.
//   - Memory: some MB per worker, and the pages of the source tensors that are being copied.
// Throws Error that names the tensor if one is missing or unexpected, has a wrong shape or an unusable dtype, has
// values that float16 cannot hold, or cannot be quantised as options ask.
void convertModel(const std::filesystem::path& source_path, const std::filesystem::path& output_dir,
                  const ConvertOptions& options);

}  // namespace chorus
