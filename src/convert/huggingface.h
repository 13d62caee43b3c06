// Hugging Face model directory -> checkpoint directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/dtype.h"
#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "formats/tensor_source.h"

namespace chorus {

// Weight-only quantisation by round to nearest (convert/quantise.h).
struct QuantiseOptions {
  int32_t bits = 8;        // 8 or 4
  int32_t group_size = 0;  // inputs that share a scale: 32, 64 or 128; 0: one scale an output
  bool quantise_head = false;
};

struct ConvertOptions {
  std::optional<DType> dtype;  // float32, float16 or bfloat16; nullopt: what the source's config says, else its tensors
  int32_t tp_size = 1;
  int32_t pp_size = 1;
  bool use_parallel_embedding = false;
  int32_t embedding_sharding_dim = 0;  // 0: vocabulary, 1: hidden size; acts with use_parallel_embedding
  std::optional<QuantiseOptions> quantise;
  int32_t workers = 0;  // threads that copy; 0: one per core
};

// The checkpoint's config that convertHuggingFace would write for model_dir's config.json. tensors are asked for a
// dtype only when neither options nor config.json names one. Throws Error.
ModelConfig configOfHuggingFace(const std::filesystem::path& model_dir, const TensorSource& tensors,
                                const ConvertOptions& options);

struct HuggingFaceModel {
  TensorSource tensors;
  ModelConfig config;  // of the checkpoint that it becomes
  WeightTable table;   // of config
};
// Reads config.json alone, without a look at the weights. Throws Error when it is not there, not readable, or names an
// architecture that is not known.
void checkHuggingFaceConfig(const std::filesystem::path& model_dir);

// Opens model_dir and checks that its tensors are those its config.json asks for. Throws Error that names the tensor
// which is missing, not expected, of another shape or of an unusable dtype.
HuggingFaceModel openHuggingFace(const std::filesystem::path& model_dir, const ConvertOptions& options);

// Reads config.json and the weights of model_dir (formats/tensor_source.h) and writes a checkpoint to output_dir, which
// appears whole or not at all; an earlier checkpoint there is replaced, other files are never. Values are rounded to
// nearest even. Memory: a few MB per worker; sources are mapped. Throws Error that names the tensor which is missing,
// not expected, of another shape, of an unusable dtype, whose values float16 cannot hold, or that cannot be quantised
// as asked.
void convertHuggingFace(const std::filesystem::path& model_dir, const std::filesystem::path& output_dir,
                        const ConvertOptions& options);

}  // namespace chorus
