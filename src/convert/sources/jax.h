// JAX checkpoints: .npz files, and flax msgpack files with the names of transformers' Flax classes or of DeepMind's
// Gemma, beside the config.json of the Hugging Face model.
#pragma once

#include "convert/sources/sources.h"

namespace chorus {

// Recognises an .npz or .msgpack file, and a directory with flax_model.msgpack, its index of shards, or one .npz file.
// Compressed arrays are unpacked into a temporary file without a name, after all shapes were checked. Checksums are
// compared. Errors are those of NpzFile, parseFlaxFile and modelWithHuggingFaceNames.
SourceReader jaxReader();

}  // namespace chorus
