// Checkpoint directories of TensorRT-LLM, ModelOpt and this program as a source: their ranks are joined, and then cut
// again as the options say.
#pragma once

#include "convert/sources/sources.h"

namespace chorus {

// Recognises a directory with rank0.safetensors, or with a config.json that has the key 'architecture' and not Hugging
// Face's 'architectures'. Quantised weights are copied as they are; the options must not ask for a quantisation then. A
// model whose output head has the values of its embedding table becomes one that ties them. Reading throws the Errors
// of CheckpointReader.
SourceReader checkpointReader();

}  // namespace chorus
