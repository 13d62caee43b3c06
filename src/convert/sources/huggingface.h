// Hugging Face model directories: config.json, and tensors in safetensors or PyTorch files.
#pragma once

#include <filesystem>
#include <utility>

#include "convert/sources/source_model.h"
#include "convert/sources/sources.h"

namespace chorus {

// Recognises a directory that has a config.json, unless that is an engine's. Reading it may throw Error that names the
// tensor if one is missing or unexpected, or has a wrong shape or an unusable dtype.
SourceReader huggingFaceReader();

// The model whose config is model_dir/config.json and whose tensors have the names of Hugging Face's files, wherever
// they come from. Throws the Errors of the reader.
SourceModel modelWithHuggingFaceNames(const std::filesystem::path& model_dir, SourceTensors tensors,
                                      const ConvertOptions& options);
// The config of such a model, without what the tensors and the options decide, and its weight table.
std::pair<ModelConfig, WeightTable> huggingFaceTable(const std::filesystem::path& model_dir);
// Whether the directory has weights in Hugging Face's files.
bool hasHuggingFaceWeights(const std::filesystem::path& dir);
// Throws Error if model_dir/config.json is missing, is not readable, or names an unknown architecture.
void checkHuggingFaceConfig(const std::filesystem::path& model_dir);

}  // namespace chorus
