// DeepSpeed's training checkpoints of Hugging Face models: ZeRO stages 0 to 3, tensor parallelism and pipelines.
#pragma once

#include "convert/sources/sources.h"

namespace chorus {

// Recognises a directory with the files of a checkpoint, or with the file "latest" and such a directory.
//   - Stages 0 to 2: the weights of the module, in the type of the training. Only what the module lacks is joined from
//     the float32 partitions of the optimizer; rounded to the module's type, both have the same values.
//   - Stage 3: the float32 partitions, as no file has the module whole; frozen parameters from their fragments, buffers
//     from the module.
//   - Pipelines: the files of the layers.
// Errors are those of findDeepSpeedFiles and modelWithHuggingFaceNames, and kCorrupt if a rank's file is missing.
SourceReader deepSpeedReader();

}  // namespace chorus
